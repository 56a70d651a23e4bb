"""Certificates made by openssl."""

import subprocess
from pathlib import Path


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


def make_pem(folder: Path) -> Path:
    """Make two authorities and three certificates for the address 127.0.0.1. The first authority
    signs `server` and `client`, the other signs `stranger`."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other-ca"):
        files = ("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem")
        openssl("req", "-x509", *new, *files, "-days", "2", "-subj", f"/CN={name}")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name, authority in (("server", "ca"), ("client", "ca"), ("stranger", "other-ca")):
        request = ("-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr")
        openssl("req", *new, *request, "-subj", f"/CN={name}")
        signed_by = ("-CA", f"{folder}/{authority}.pem", "-CAkey", f"{folder}/{authority}.key")
        files = ("-in", f"{folder}/{name}.csr", "-out", f"{folder}/{name}.pem")
        names = ("-extfile", f"{folder}/names")
        openssl("x509", "-req", *files, *signed_by, "-CAcreateserial", "-days", "2", *names)
    openssl("ec", "-aes128", "-in", f"{folder}/server.key", "-out", f"{folder}/locked.key",
            "-passout", "pass:secret")  # fmt: skip
    return folder
