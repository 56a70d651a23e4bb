"""Properties files are read as Java reads them, and a fault in one is named with its place."""

import subprocess
from pathlib import Path

import pytest

from headgate_runtime.config.properties import PropertiesError, parse_properties, read_properties

JAVA = r"""# a comment
! another
a=1
b : 2
c 3
  indented = value with trailing blanks@
d=one,\
   two, \
	three
e=caf\u00e9 \u2603
f=
g
key\ with\ blanks\:\= = x\ty\\z
h==:x
i=a\
#no comment
""".replace("@", "  ")
WANTED = {
    "a": "1",
    "b": "2",
    "c": "3",
    "indented": "value with trailing blanks  ",
    "d": "one,two, three",
    "e": "café ☃",
    "f": "",
    "g": "",
    "key with blanks:=": "x\ty\\z",
    "h": "=:x",
    "i": "a#no comment",
}
PRINTER = """
import java.io.*; import java.nio.file.*; import java.util.*;
public class Printer {
  public static void main(String[] a) throws Exception {
    Properties p = new Properties();
    try (InputStream in = Files.newInputStream(Paths.get(a[0]))) { p.load(in); }
    StringBuilder out = new StringBuilder();
    for (String k : new TreeSet<>(p.stringPropertyNames()))
      for (String t : new String[]{k, p.getProperty(k)}) {
        for (char c : t.toCharArray()) out.append((int) c).append(' ');
        out.append('\\n');
      }
    System.out.print(out);
  }
}
"""


def test_each_form() -> None:
    found = parse_properties(JAVA, "w.properties")
    assert dict(found.values) == WANTED
    assert found.lines["a"] == 3
    assert found.lines["d"] == 7
    assert found.lines["e"] == 10
    assert found.place("f") == "w.properties:11"
    assert found.place("none") == "w.properties"


@pytest.mark.slow
def test_as_java_reads_it(tmp_path: Path) -> None:
    file, program = tmp_path / "w.properties", tmp_path / "Printer.java"
    file.write_text(JAVA)
    program.write_text(PRINTER)
    done = subprocess.run(
        ["java", "-Xmx64m", str(program), str(file)], capture_output=True, text=True, check=True
    )
    texts = ["".join(chr(int(n)) for n in line.split()) for line in done.stdout.splitlines()]
    if len(texts) % 2:
        texts.append("")
    assert dict(zip(texts[::2], texts[1::2], strict=True)) == WANTED


@pytest.mark.parametrize("text", ["a=1\rb=2\r\nc=3\n\n\nd=4", "a=1\nb=2\nc=3\n# x\n\nd=4\n"])
def test_lines_however_they_end(text: str) -> None:
    assert dict(parse_properties(text, "f").lines) == {"a": 1, "b": 2, "c": 3, "d": 6}


def test_utf8_and_latin1(tmp_path: Path) -> None:
    file = tmp_path / "w.properties"
    for data in ("\ufeffa=é".encode(), "a=é".encode("iso-8859-1"), b"a=\\u00e9"):
        file.write_bytes(data)
        assert read_properties(file).values == {"a": "é"}


def test_a_key_given_twice() -> None:
    found = parse_properties("a=1\nb=2\na=3\n", "f")
    assert (found.values["a"], found.lines["a"], found.repeated) == ("3", 3, ("a",))


def test_faults_say_where(tmp_path: Path) -> None:
    with pytest.raises(PropertiesError, match=r"^f:3: Invalid \\u escape sequence"):
        parse_properties("a=1\nb=2\nc=\\u12\n", "f")
    for line in ("c=\\ud800", "\\udc00=c", "c=\\ude00\\ud83d"):
        with pytest.raises(PropertiesError, match=r"^f:3: half of a surrogate pair, '.ud"):
            parse_properties(f"a=\\ud83d\\ude00\n\n{line}\n", "f")
    with pytest.raises(PropertiesError, match=r"none[.]properties: there is no such file"):
        read_properties(tmp_path / "none.properties")
    with pytest.raises(PropertiesError, match="is a folder"):
        read_properties(tmp_path)
