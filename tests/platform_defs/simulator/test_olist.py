"""Olist's files become landing files; the real sample, if present, is checked by a naive join."""

import csv
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from platform_defs.simulator.olist import ITEMS, ORDERS, PAYMENTS, PRODUCTS, prepare
from tests.support.shared_data import OLIST

real = pytest.mark.skipif(not (OLIST / ORDERS).is_file(), reason=f"the Olist sample is not at {OLIST}")

ORDER_LINES = """order_id,customer_id,order_status,order_purchase_timestamp,order_approved_at,{shipped},{delivered}
b,"São, Paulo",delivered,2018-01-02 10:00:00,2018-01-02 11:00:00,2018-01-03 10:00:00,2018-01-09 10:00:00
a,李雷,created,2018-01-01 10:00:00,,,
c,"say ""hi"" twice",shipped,2018-01-03 10:00:00,2018-01-03 10:00:00,2018-01-04 10:00:00,
""".format(shipped="order_delivered_carrier_date", delivered="order_delivered_customer_date")
PAYMENT_LINES = """order_id,payment_sequential,payment_type,payment_installments,payment_value
c,1,boleto,1,007.50
b,2,voucher,1,1.0
b,1,credit_card,3,99.90
a,1,boleto,1,5
nowhere,1,boleto,1,6
"""
ITEM_LINES = """order_id,order_item_id,product_id,seller_id,shipping_limit_date,price,freight_value
b,1,p1,s1,2018-01-05 10:00:00,9.90,1.00
b,2,p2,s2,2018-01-05 10:00:00,0.10,1.00
nowhere,1,p1,s1,2018-01-05 10:00:00,9.90,1.00
"""
PRODUCT_LINES = """product_id,product_category_name
p1,livros
p3,
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / ORDERS).write_text(ORDER_LINES, encoding="utf-8")
    (tmp_path / PAYMENTS).write_text(PAYMENT_LINES, encoding="utf-8")
    (tmp_path / ITEMS).write_text(ITEM_LINES, encoding="utf-8")
    (tmp_path / PRODUCTS).write_text(PRODUCT_LINES, encoding="utf-8")
    return tmp_path


def _rows(folder: Path) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in sorted(folder.iterdir()):
        with path.open(newline="", encoding="utf-8") as file:
            rows += csv.DictReader(file)
    return rows


def _items() -> list[dict[str, str]]:
    with (OLIST / ITEMS).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _time(written: str) -> datetime:
    return datetime.strptime(written, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)


def test_the_time_of_a_payment_is_its_orders_approval_and_payments_without_a_time_come_first(small: Path) -> None:
    counts = prepare(small, small / "landing")
    assert counts == {
        "orders": 3,
        "orders_without_time": 0,
        "payments": 5,
        "payments_without_time": 2,
        "order_items": 3,
        "order_items_without_time": 1,
        "order_updates": 8,
        "order_updates_without_time": 0,
    }
    assert (small / "landing" / "payments" / "part-00000.csv").read_text() == (
        "payment_id,order_id,method,amount,payment_time\n"
        "a-1,a,boleto,5,\n"
        "nowhere-1,nowhere,boleto,6,\n"
        "b-2,b,voucher,1.0,2018-01-02 11:00:00\n"
        "b-1,b,credit_card,99.90,2018-01-02 11:00:00\n"
        "c-1,c,boleto,007.50,2018-01-03 10:00:00\n"
    )


def test_an_item_has_the_time_of_its_order_and_the_category_of_its_product(small: Path) -> None:
    prepare(small, small / "landing")
    assert (small / "landing" / "order_items" / "part-00000.csv").read_text() == (
        "order_item_id,order_id,item_id,category,seller_id,quantity,price,item_time\n"
        "nowhere-1,nowhere,p1,livros,s1,1,9.90,\n"
        "b-1,b,p1,livros,s1,1,9.90,2018-01-02 10:00:00\n"
        "b-2,b,p2,,s2,1,0.10,2018-01-02 10:00:00\n"
    )


def test_each_status_change_of_an_order_is_a_row(small: Path) -> None:
    prepare(small, small / "landing")
    assert (small / "landing" / "order_updates" / "part-00000.csv").read_text() == (
        "order_update_id,order_id,status,amount,update_time\n"
        "a-created,a,created,,2018-01-01 10:00:00\n"
        "b-created,b,created,,2018-01-02 10:00:00\n"
        "b-approved,b,approved,,2018-01-02 11:00:00\n"
        "b-shipped,b,shipped,,2018-01-03 10:00:00\n"
        "c-created,c,created,,2018-01-03 10:00:00\n"
        "c-approved,c,approved,,2018-01-03 10:00:00\n"
        "c-shipped,c,shipped,,2018-01-04 10:00:00\n"
        "b-delivered,b,delivered,,2018-01-09 10:00:00\n"
    )


def test_orders_have_the_columns_of_the_shop_and_unchanged_values(small: Path) -> None:
    prepare(small, small / "landing")
    assert (small / "landing" / "orders" / "part-00000.csv").read_text(encoding="utf-8") == (
        "order_id,customer_id,status,amount,order_time\n"
        "a,李雷,created,,2018-01-01 10:00:00\n"
        'b,"São, Paulo",delivered,,2018-01-02 10:00:00\n'
        'c,"say ""hi"" twice",shipped,,2018-01-03 10:00:00\n'
    )


def test_the_option_as_is_keeps_the_order_of_the_files(small: Path) -> None:
    prepare(small, small / "landing", arrival="as_is")
    assert [row["order_id"] for row in _rows(small / "landing" / "orders")] == ["b", "a", "c"]
    assert [row["order_id"] for row in _rows(small / "landing" / "payments")] == ["c", "b", "b", "a", "nowhere"]


def test_each_part_has_a_header_and_each_row_is_in_one_part(small: Path) -> None:
    prepare(small, small / "landing", parts=4)
    files = sorted((small / "landing" / "payments").iterdir())
    assert [file.name for file in files] == [f"part-{part:05d}.csv" for part in range(4)]
    assert {file.read_text().splitlines()[0] for file in files} == {"payment_id,order_id,method,amount,payment_time"}
    assert len(_rows(small / "landing" / "payments")) == 5
    assert len(_rows(small / "landing" / "orders")) == 3


def test_preparing_twice_changes_nothing_and_other_options_are_refused(small: Path) -> None:
    assert prepare(small, small / "landing") == prepare(small, small / "landing")
    with pytest.raises(FileExistsError, match=r"part-00000\.csv already contains other input"):
        prepare(small, small / "landing", parts=2)


def test_a_missing_file_is_named(small: Path) -> None:
    (small / PAYMENTS).unlink()
    with pytest.raises(ValueError, match=rf"{PAYMENTS} is missing; the folder holds \['{ITEMS}', '{ORDERS}', '{PRODUCTS}'\]"):
        prepare(small, small / "landing")


def test_a_missing_column_is_named_with_those_found(small: Path) -> None:
    (small / ORDERS).write_text("order_id,order_purchase_timestamp\na,2018-01-01 10:00:00\n")
    with pytest.raises(
        ValueError,
        match=r"has no column \['customer_id', 'order_status', 'order_app.*\]; it has \['order_id', 'order_purchase_timestamp'\]",
    ):
        prepare(small, small / "landing")
    assert not (small / "landing").exists()


def test_an_empty_file_is_named(small: Path) -> None:
    (small / ORDERS).write_text(ORDER_LINES.splitlines()[0])
    with pytest.raises(ValueError, match=rf"{ORDERS} has no rows"):
        prepare(small, small / "landing")


@pytest.mark.parametrize("line", ["d,e,deli", "d,e,created,2018-01-01 10:00:00,,,,too many"])
def test_a_row_with_too_few_or_too_many_fields_is_named(small: Path, line: str) -> None:
    (small / ORDERS).write_text(f"{ORDER_LINES}{line}\n", "utf-8")
    with pytest.raises(ValueError, match=rf"row 4 of .*{ORDERS} does not have 7 fields; the file may be incomplete"):
        prepare(small, small / "landing", arrival="as_is")
    assert not (small / "landing").exists()


def test_zero_parts_are_refused(small: Path) -> None:
    with pytest.raises(ValueError, match="`parts` is 0 and `arrival` is 'by_time'; legal are 1 or more"):
        prepare(small, small / "landing", parts=0)


def test_orders_without_any_time_have_no_updates(small: Path) -> None:
    (small / ORDERS).write_text(f"{ORDER_LINES.splitlines()[0]}\na,b,created,,,,\n", encoding="utf-8")
    counts = prepare(small, small / "landing")
    assert (counts["orders_without_time"], counts["order_updates"]) == (1, 0)
    updates = (small / "landing" / "order_updates" / "part-00000.csv").read_text()
    assert updates == "order_update_id,order_id,status,amount,update_time\n"


@real
def test_the_real_sample_gives_the_known_counts(tmp_path: Path) -> None:
    counts = prepare(OLIST, tmp_path)
    known = {"orders": 8135, "orders_without_time": 0, "payments": 8924, "payments_without_time": 161}
    assert {name: counts[name] for name in known} == known
    assert (counts["order_items"], counts["order_items_without_time"]) == (len(_items()), 0)
    orders, payments = _rows(tmp_path / "orders"), _rows(tmp_path / "payments")
    timed = [row for row in payments if row["payment_time"]]
    assert (len(orders), len(payments), len(timed)) == (8135, 8924, 8763)
    assert len({row["order_id"] for row in orders}) == 8135
    assert len({row["payment_id"] for row in payments}) == 8924
    assert [row["payment_time"] for row in payments] == sorted(row["payment_time"] for row in payments)


@real
def test_a_naive_join_of_the_real_sample_gives_the_known_pairs(tmp_path: Path) -> None:
    prepare(OLIST, tmp_path, parts=3)
    paid: dict[str, list[datetime]] = defaultdict(list)
    for row in _rows(tmp_path / "payments"):
        if row["payment_time"]:
            paid[row["order_id"]].append(_time(row["payment_time"]))
    pairs = [
        sum(timedelta(0) <= at - _time(row["order_time"]) <= timedelta(hours=72) for at in paid[row["order_id"]])
        for row in _rows(tmp_path / "orders")
    ]
    assert (sum(pairs), pairs.count(0), 8763 - sum(pairs)) == (8547, 340, 216)


@real
def test_values_of_the_real_sample_are_unchanged(tmp_path: Path) -> None:
    prepare(OLIST, tmp_path, arrival="as_is")
    with (OLIST / PAYMENTS).open(newline="", encoding="utf-8") as file:
        values = [(row["order_id"], row["payment_type"], row["payment_value"]) for row in csv.DictReader(file)]
    assert [(row["order_id"], row["method"], row["amount"]) for row in _rows(tmp_path / "payments")] == values
