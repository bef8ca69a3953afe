-- A pipeline of taxi rides and their fares: replace it by your own.
CREATE TABLE rides ( -- files of this source land in landing/rides
  ride_id STRING NOT NULL,
  zone STRING COMMENT 'where the ride began',
  started_at TIMESTAMP(3),
  WATERMARK FOR started_at AS started_at - INTERVAL '10' MINUTE, -- a row may be this far behind the newest one without being late
  PRIMARY KEY (ride_id) NOT ENFORCED -- a second row of a ride is a duplicate
) WITH ('connector' = 'filesystem', 'format' = 'csv', 'tidemark.header' = 'true');

CREATE TABLE fares (
  ride_id STRING NOT NULL,
  amount DECIMAL(8, 2),
  paid_at TIMESTAMP(3),
  WATERMARK FOR paid_at AS paid_at - INTERVAL '10' MINUTE
) WITH (
  'connector' = 'filesystem', 'format' = 'csv', 'tidemark.header' = 'true',
  'tidemark.rule.amount_not_negative' = 'amount >= 0' -- other rows are quarantined
);

-- Each ride with the fare that was paid at most two hours after its start; unmatched rides and fares are kept.
INSERT INTO ride_fares
SELECT COALESCE(r.ride_id, f.ride_id) AS ride_id, zone, amount
FROM rides AS r FULL OUTER JOIN fares AS f
ON r.ride_id = f.ride_id AND f.paid_at BETWEEN r.started_at AND r.started_at + INTERVAL '2' HOUR;

-- The number of rides that began in each zone, by hour.
INSERT INTO rides_per_hour
SELECT zone, window_start, window_end, COUNT(*) AS rides
FROM TABLE(TUMBLE(TABLE rides, DESCRIPTOR(started_at), INTERVAL '1' HOUR))
GROUP BY zone, window_start, window_end;

-- The three zones of each hour in which most rides began.
INSERT INTO busy_zones
SELECT * FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY rides DESC) AS `rank` FROM rides_per_hour
) WHERE `rank` <= 3;
