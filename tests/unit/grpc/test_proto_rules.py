"""The rules for ``proto/`` find the faults that they name. `make lint` applies them to our
files."""

from pathlib import Path

import check_proto
import pytest

GOOD = """
syntax = "proto3";
package shop.v1;

option go_package = "shop/v1;shop";
option java_package = "org.shop";

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
  string cart_id = 1 [json_name = "cart"];
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


def described(folder: Path, text: str, name: str = "shop/v1/shop.proto") -> Path:
    """`folder` with one file of `text`, and our choice of rules."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    (folder / "buf.yaml").write_text((check_proto.PROTO / "buf.yaml").read_text())
    return folder


def test_a_file_as_it_should_be_has_no_faults(tmp_path: Path) -> None:
    assert check_proto.faults(described(tmp_path, GOOD)) == []


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("package shop.v1", "package shop", 'should be suffixed with a correctly formed version'),
        ("package shop.v1", "package store.v1", 'must be within a directory "store/v1"'),
        ("CartState", "cart_state", 'Enum name "cart_state" should be PascalCase'),
        ("CART_STATE_PAID", "CART_STATE_paid", "should be UPPER_SNAKE_CASE"),
        ("CART_STATE_PAID", "PAID", 'should be prefixed with "CART_STATE_"'),
        ("CART_STATE_UNSPECIFIED", "CART_STATE_NONE", 'should be suffixed with "_UNSPECIFIED"'),
        ("cart_id", "cartId", 'Field name "cartId" should be lower_snake_case'),
        ("payment", "Payment", 'Oneof name "Payment" should be lower_snake_case'),
        ("ShopService", "Shop", 'should be suffixed with "Service"'),
        ("rpc Buy(", "rpc Sell(", 'should be named "SellRequest"'),
        ("  // Which one.\n", "", 'Field "cart_id" should have a non-empty comment'),
        ("// Buys things.\n", "", 'Service "ShopService" should have a non-empty comment'),
        ("  // It is paid.\n", "", 'Enum value "CART_STATE_PAID" should have a non-empty comment'),
    ],
)  # fmt: skip
def test_a_fault_is_found(before: str, after: str, fault: str, tmp_path: Path) -> None:
    found = check_proto.faults(described(tmp_path, GOOD.replace(before, after)))
    assert any(fault in line for line in found), found


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("cart_id = 1", "cart_id = 7", 'Previously present field "1" with name "cart_id"'),
        ("string cart_id", "bytes cart_id", 'Field "1" with name "cart_id" on message'),
        ("optional int64", "int64", 'Field "1" with name "before" on message "BuyResponse"'),
        ("CART_STATE_PAID = 1", "CART_STATE_PAID = 2", 'Previously present enum value "1"'),
        ("returns (Buy", "returns (stream Buy", 'RPC "Buy" on service "ShopService" changed'),
        ("oneof payment", "oneof paying", 'Previously present oneof "payment"'),
        ("package shop.v1;", "package shop.v2;", 'package changed from "shop.v1" to "shop.v2"'),
        ('"shop/v1;shop"', '"shop/v1;sold"', 'File option "go_package" changed'),
        ('"org.shop"', '"org.sold"', 'File option "java_package" changed'),
        ('"cart"', '"basket"', 'option "json_name" from "cart" to "basket"'),
    ],
)  # fmt: skip
def test_a_change_that_breaks_older_clients_is_found(
    before: str, after: str, line: str, tmp_path: Path
) -> None:
    folder = described(tmp_path, GOOD)
    check_proto.write(folder)
    assert before in GOOD
    found = check_proto.faults(described(folder, GOOD.replace(before, after)))
    assert any(line in each for each in found), found


def test_what_is_new_breaks_nothing_and_is_to_be_written_down(tmp_path: Path) -> None:
    folder = described(tmp_path, GOOD)
    assert not check_proto.is_current(folder)
    check_proto.write(folder)
    assert check_proto.is_current(folder)
    more = GOOD.replace("  // Which one.", "  // More.\n  string more = 9;\n  // Which one.")
    described(folder, more)
    assert check_proto.faults(folder) == []
    assert not check_proto.is_current(folder)
    check_proto.write(folder)
    assert check_proto.is_current(folder)
    described(folder, GOOD)
    assert any('field "9" with name "more"' in line for line in check_proto.faults(folder))


def test_ours_keep_the_rules() -> None:
    assert check_proto.main([]) == 0
