-- The queries of Nexmark, the benchmark of auctions and bids, as one pipeline. docs/reference/nexmark.md describes what differs from Flink.

CREATE TABLE person (
  id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, customTime TIMESTAMP(3), extra STRING,
  WATERMARK FOR customTime AS customTime - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'json');

CREATE TABLE auction (
  id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, customTime TIMESTAMP(3), expires TIMESTAMP(3),
  seller BIGINT, category BIGINT, extra STRING,
  WATERMARK FOR customTime AS customTime - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'json');

CREATE TABLE bid (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, customTime TIMESTAMP(3), extra STRING,
  WATERMARK FOR customTime AS customTime - INTERVAL '4' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'json');

-- Bids by the time of their ingest, for query 12: a source without WATERMARK.
CREATE TABLE arriving_bid (auction BIGINT, bidder BIGINT, price BIGINT, p_time AS PROCTIME())
WITH ('connector' = 'filesystem', 'format' = 'json');

-- What query 13 adds to bids: a table that seldom changes.
CREATE TABLE side_input (key BIGINT, `value` STRING) WITH ('connector' = 'filesystem', 'format' = 'csv');

-- 0, 1, 2, 10, 14, 21 and 22: rows of bids, with columns that are computed from one row.
INSERT INTO q0 SELECT auction, bidder, price, customTime, extra FROM bid;

INSERT INTO q1 SELECT auction, bidder, 0.908 * price AS price, customTime, extra FROM bid;

INSERT INTO q2 SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- For query 10, and for queries 15 to 17.
CREATE VIEW dated_bid AS SELECT *, DATE_FORMAT(customTime, 'yyyy-MM-dd') AS dt, DATE_FORMAT(customTime, 'HH:mm') AS hm FROM bid;

INSERT INTO q10 SELECT auction, bidder, price, customTime, extra, dt, hm FROM dated_bid;

INSERT INTO q14
SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN HOUR(customTime) BETWEEN 8 AND 18 THEN 'dayTime' WHEN HOUR(customTime) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END AS bidTimeType,
  customTime, extra,
  CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts  -- in place of a function in Java
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

INSERT INTO q21
SELECT * FROM (
  SELECT auction, bidder, price, channel,
    CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
      ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
  FROM bid
) WHERE channel_id IS NOT NULL;

INSERT INTO q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid;

-- 3: auctions of category 10, with sellers in three states who registered at most an hour before or after.
INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p
ON a.seller = p.id AND a.customTime BETWEEN p.customTime - INTERVAL '1' HOUR AND p.customTime + INTERVAL '1' HOUR
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- 4 and 9: the bids of each auction while it is open, which is a day at most.
CREATE VIEW bids_in_time AS
SELECT a.*, b.bidder, b.price, b.customTime AS bid_customTime, b.extra AS bid_extra
FROM auction a JOIN bid b
ON a.id = b.auction AND b.customTime BETWEEN a.customTime AND a.customTime + INTERVAL '1' DAY AND b.customTime <= a.expires;

CREATE VIEW final_prices AS SELECT id, category, MAX(price) AS final FROM bids_in_time GROUP BY id, category;

INSERT INTO q4
SELECT category, CAST(AVG(final) AS BIGINT) AS average FROM final_prices GROUP BY category;

-- 5: the auctions with the most bids in the last 10 seconds, every 2 seconds.
CREATE VIEW bid_counts AS
SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
FROM TABLE(HOP(TABLE bid, DESCRIPTOR(customTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;

INSERT INTO q5
SELECT c.auction, c.num, c.starttime, c.endtime
FROM bid_counts c JOIN (SELECT MAX(num) AS maxn, starttime, endtime FROM bid_counts GROUP BY starttime, endtime) m
ON c.starttime = m.starttime AND c.endtime = m.endtime AND c.num >= m.maxn;

-- 7: the highest bids of each 10 seconds.
CREATE VIEW highest_prices AS
SELECT MAX(price) AS maxprice, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(customTime), INTERVAL '10' SECOND))
GROUP BY window_start, window_end;

INSERT INTO q7
SELECT b.auction, b.bidder, b.price, b.customTime, b.extra
FROM bid b JOIN highest_prices h ON b.price = h.maxprice AND b.customTime BETWEEN h.endtime - INTERVAL '10' SECOND AND h.endtime;

-- 8: persons who have registered and opened an auction within the same 10 seconds.
INSERT INTO q8
SELECT p.id, p.name, p.starttime
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(customTime), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end
) p JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(customTime), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime;

INSERT INTO q9
SELECT id, itemName, seller, category, bidder, price, bid_customTime, bid_extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid_customTime) AS n FROM bids_in_time)
WHERE n = 1;

-- 11: how many bids a user makes before a pause of 10 seconds.
INSERT INTO q11
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(customTime), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- 12: how many bids of a user arrive in each 10 seconds.
INSERT INTO q12
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE arriving_bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- 13: bids with the value of a key that had arrived before.
INSERT INTO q13
SELECT b.auction, b.bidder, b.price, b.customTime, s.`value`
FROM (SELECT *, PROCTIME() AS p_time FROM bid) b JOIN side_input FOR SYSTEM_TIME AS OF b.p_time AS s ON MOD(b.auction, 10000) = s.key;

-- 15 to 17: statistics of each day, of each channel and of each auction.
INSERT INTO q15
SELECT dt AS `day`, COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(DISTINCT bidder) AS total_bidders, COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions
FROM dated_bid GROUP BY dt;

INSERT INTO q16
SELECT channel, dt AS `day`, MAX(hm) AS `minute`, COUNT(*) AS total_bids, COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions
FROM dated_bid GROUP BY channel, dt;

INSERT INTO q17
SELECT auction, dt AS `day`, COUNT(*) AS total_bids, COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids, MIN(price) AS min_price,
  MAX(price) AS max_price, CAST(AVG(price) AS BIGINT) AS avg_price, SUM(price) AS sum_price
FROM dated_bid GROUP BY auction, dt;

-- 18: the last bid of each bidder for each auction.
INSERT INTO q18
SELECT auction, bidder, price, channel, url, customTime, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY customTime DESC) AS n FROM bid)
WHERE n = 1;

-- 19: the ten highest bids of each auction.
INSERT INTO q19
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid) WHERE rank_number <= 10;

-- 20: bids for auctions of category 10, within a day of the auction's start.
INSERT INTO q20
SELECT b.auction, b.bidder, b.price, b.channel, b.customTime AS bid_customTime, a.itemName, a.seller, a.customTime AS auction_customTime
FROM bid b JOIN auction a ON b.auction = a.id AND b.customTime BETWEEN a.customTime AND a.customTime + INTERVAL '1' DAY
WHERE a.category = 10;

-- 23: bids of persons who sell an item too, all within an hour.
INSERT INTO q23
SELECT b.bidder, b.price, p.name, a.itemName, a.id AS own_auction
FROM bid b
JOIN person p ON p.id = b.bidder AND b.customTime BETWEEN p.customTime - INTERVAL '1' HOUR AND p.customTime + INTERVAL '1' HOUR
JOIN auction a ON a.seller = b.bidder AND b.customTime BETWEEN a.customTime - INTERVAL '1' HOUR AND a.customTime + INTERVAL '1' HOUR;
