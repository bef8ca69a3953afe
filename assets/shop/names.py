"""The names of the shop's sources and tables."""

ORDERS, PAYMENTS, ORDER_ITEMS, CLICKS = "orders", "payments", "order_items", "clicks"
ORDER_UPDATES = "order_updates"
PAYMENT_ORDER_WIDE, ORDER_WIDE, PAYMENT_WIDE = "payment_order_wide", "order_wide", "payment_wide"
ITEM_SALES, ITEM_CLICKS, ITEM_CONVERSION = "item_sales", "item_clicks", "item_conversion"
HOT_ITEMS, CATEGORY_HOT_ITEMS = "hot_items", "category_hot_items"
SELLER_REVENUE, SELLER_LEADERBOARD, CATEGORY_LEADERBOARD = "seller_revenue", "seller_leaderboard", "category_leaderboard"
ORDER_STATUS_BOARD = "order_status_board"
