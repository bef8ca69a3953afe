"""The settings of the example shop. A pipeline of your own has these values in its sources and tables."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from operators.timing import length_ms
from platform_defs.settings.values import PREFIX, Duration, PositiveDuration, Trigger

_MOST_WINDOWS = 10_000


class ShopSettings(BaseSettings):
    """The settings of the example shop; see `Settings`."""

    payment_within: Duration = Field(
        default="24 hours", description="a payment belongs to an order if it is made at most this long after it"
    )
    join_how: Literal["inner", "left", "right", "full"] = Field(
        default="full", description="the kind of the payment-order join: inner, left, right, full"
    )
    sales_window: Duration = Field(default="30 minutes", description="size of the windows of item sales, clicks and hot items")
    sales_slide: Duration = Field(default="10 minutes", description="distance between the starts of these windows")
    allowed_lateness: Duration = Field(default="5 minutes", description="how long after a window's end a late row still corrects it")
    early_results: Trigger = Field(
        default="", description="when open windows of item sales show early results: 'every step', 'every 100 rows', 'every 10 minutes'"
    )
    hot_items: int = Field(default=10, ge=1, le=1_000_000, description="items in a ranking of hot items")
    category_hot_items: int = Field(default=3, ge=1, le=1_000_000, description="items in a ranking of a category's hot items")
    leaderboard: int = Field(default=10, ge=1, le=1_000_000, description="rows in a leaderboard for each seller, category or status")
    out_of_orderness: Duration = Field(default="10 minutes", description="how far a row may be behind the newest one without being late")
    idle_timeout: Duration = Field(
        default="1 hour",
        description="after this time without rows, a source no longer holds back the watermark, nor does a table whose sources are "
        "all idle",
    )
    duplicate_horizon: Duration = Field(default="7 days", description="how far apart in event time two rows of a key are still duplicates")
    future_skew: Duration = Field(default="24 hours", description="a row further ahead of the clock than this is quarantined")
    completeness: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False, description="join completeness below this is a warning")
    freshness: PositiveDuration | None = Field(default=None, description="how long a table may wait to reflect rows; no limit when unset")

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        """Raise if the size or the slide of the windows is 0, or if a row would be in more than `_MOST_WINDOWS` windows."""
        size, slide = length_ms(self.sales_window, "sales_window"), length_ms(self.sales_slide, "sales_slide")
        for field, length in (("sales_window", size), ("sales_slide", slide)):
            if length == 0:
                raise ValueError(f"{PREFIX}{field.upper()} is {getattr(self, field)!r}: legal: a duration of more than zero")
        if size > slide * _MOST_WINDOWS:
            raise ValueError(
                f"{PREFIX}SALES_SLIDE is {self.sales_slide!r}: legal: at least a {_MOST_WINDOWS:,}th of the window, {self.sales_window!r}; "
                "a row is in all windows that overlap at its time"
            )
        return self
