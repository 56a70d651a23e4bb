"""The rules for ``proto/`` find what they are there for; `make lint` applies them to our files."""

from pathlib import Path

import check_proto
import pytest

GOOD = """
syntax = "proto3";
package shop.v1;

// What a cart is about to be.
enum CartState {
  // Not given.
  CART_STATE_UNSPECIFIED = 0;
  // It is paid.
  CART_STATE_PAID = 1;
}

// A request.
message BuyRequest {
  // Which one.
  string cart_id = 1;
  // How it is paid.
  oneof payment {
    // By card.
    string card = 2;
  }
}

// An answer.
message BuyResponse {
  // How many were there before; not set if nobody counted.
  optional int64 before = 1;
}

// Buys things.
service ShopService {
  // Buys one cart.
  rpc Buy(BuyRequest) returns (BuyResponse);
}
"""


def described(
    folder: Path, text: str, name: str = "shop/v1/shop.proto"
) -> list[check_proto.pb.FileDescriptorProto]:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return check_proto.described(folder)


def test_a_file_as_it_should_be_has_no_faults(tmp_path: Path) -> None:
    assert list(check_proto.faults(described(tmp_path, GOOD))) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('syntax = "proto3"', 'syntax = "proto2"', "syntax is not given, expected proto3"),
        ("package shop.v1", "package shop", "expected a name that ends in .v1 or later"),
        ("package shop.v1", "package store.v1", "expected below store/v1"),
        ("CartState", "cart_state", "cart_state: expected PascalCase"),
        ("CART_STATE_PAID", "CART_STATE_paid", "CART_STATE_paid: expected UPPER_SNAKE_CASE"),
        ("CART_STATE_PAID", "PAID", "PAID: expected to begin with CART_STATE_"),
        ("CART_STATE_UNSPECIFIED", "CART_STATE_NONE", "CART_STATE_NONE: expected the first"),
        ("cart_id", "cartId", "cartId: expected lower_snake_case"),
        ("payment", "Payment", "Payment: expected lower_snake_case"),
        ("ShopService", "Shop", "Shop: expected to end in Service"),
        ("rpc Buy(", "rpc Sell(", "Sell: takes or gives .shop.v1.BuyRequest, expected .shop.v1.S"),
        ("  // Which one.\n", "", "cart_id: expected a comment above it"),
        ("// Buys things.\n", "", "ShopService: expected a comment above it"),
        ("  // It is paid.\n", "", "CART_STATE_PAID: expected a comment above it"),
    ],
)  # fmt: skip
def test_a_fault_is_found(before: str, after: str, fault: str, tmp_path: Path) -> None:
    text = GOOD.replace(before, after)
    if "proto2" in after:
        text = text.replace("  string cart_id", "  optional string cart_id")
    assert any(fault in line for line in check_proto.faults(described(tmp_path, text)))


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("cart_id = 1", "cart_id = 7", "field shop.v1.BuyRequest.cart_id = 1: optional string"),
        ("string cart_id", "bytes cart_id", "field shop.v1.BuyRequest.cart_id = 1"),
        ("optional int64", "int64", "field shop.v1.BuyResponse.before = 1: explicit int64"),
        ("CART_STATE_PAID = 1", "CART_STATE_PAID = 2", "enum shop.v1.CartState.CART_STATE_PAID"),
        ("returns (Buy", "returns (stream Buy", "rpc shop.v1.ShopService.Buy (.shop.v1"),
    ],
)  # fmt: skip
def test_a_change_that_breaks_older_clients_is_found(
    before: str, after: str, line: str, tmp_path: Path
) -> None:
    released = check_proto.surface(described(tmp_path / "old", GOOD))
    now = check_proto.surface(described(tmp_path / "new", GOOD.replace(before, after)))
    found = check_proto.broken(released, now)
    assert len(found) == 1 and found[0].startswith(line)
    more = GOOD.replace("  // Which one.", "  // More.\n  string more = 9;\n  // Which one.")
    assert (
        check_proto.broken(released, check_proto.surface(described(tmp_path / "more", more))) == []
    )


def test_ours_keep_the_rules() -> None:
    assert check_proto.main([]) == 0
