CREATE TABLE IF NOT EXISTS `flights_local` ON CLUSTER `main` (
  `carrier` String,
  `flight_id` UInt64,
  `sched_dep` DateTime64(6, 'UTC'),
  `origin` Nullable(String),
  `late` Bool,
  `paid` Nullable(Decimal(9, 2)),
  `delay` Nullable(Int32),
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`sched_dep`)
ORDER BY (`carrier`, `flight_id`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE TABLE IF NOT EXISTS `flights` ON CLUSTER `main` (
  `carrier` String,
  `flight_id` UInt64,
  `sched_dep` DateTime64(6, 'UTC'),
  `origin` Nullable(String),
  `late` Bool,
  `paid` Nullable(Decimal(9, 2)),
  `delay` Nullable(Int32),
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = Distributed('main', 'flights', 'flights_local', xxHash64(`carrier`))
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `flights_now` ON CLUSTER `main` AS
SELECT `carrier`, `flight_id`, `sched_dep`, `origin`, `late`, `paid`, `delay`, `_ver`
FROM `flights` FINAL
WHERE `_deleted` = 0;

CREATE TABLE IF NOT EXISTS `posts_local` ON CLUSTER `main` (
  `owner` Int64,
  `post` UInt64,
  `size` Float64,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC'))
ORDER BY (`owner`, `post`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE TABLE IF NOT EXISTS `posts` ON CLUSTER `main` (
  `owner` Int64,
  `post` UInt64,
  `size` Float64,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = Distributed('main', 'flights', 'posts_local', xxHash64(`owner`))
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `posts_now` ON CLUSTER `main` AS
SELECT `owner`, `post`, `size`, `_ver`
FROM `posts` FINAL
WHERE `_deleted` = 0;

CREATE TABLE IF NOT EXISTS `visits_local` ON CLUSTER `main` (
  `owner` Int64,
  `visit` UInt64,
  `day_of` Date32,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day_of`)
ORDER BY (`owner`, `visit`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE TABLE IF NOT EXISTS `visits` ON CLUSTER `main` (
  `owner` Int64,
  `visit` UInt64,
  `day_of` Date32,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = Distributed('main', 'flights', 'visits_local', xxHash64(`owner`))
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `visits_now` ON CLUSTER `main` AS
SELECT `owner`, `visit`, `day_of`, `_ver`
FROM `visits` FINAL
WHERE `_deleted` = 0;

CREATE TABLE IF NOT EXISTS `flights_by_day_local` ON CLUSTER `main` (
  `carrier` String,
  `day` Date32,
  `origin` Nullable(String),
  `flights` UInt64,
  `late` UInt64,
  `paid` Nullable(Decimal(38, 2)),
  `delay` Nullable(Float64),
  `last` DateTime64(6, 'UTC'),
  `planes` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day`)
ORDER BY (`carrier`, `day`, `origin`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, allow_nullable_key = 1
COMMENT 'slotline rollup format 1, line flights: flights by carrier, day, origin: flights count, late sum(late), paid sum(paid), delay avg(delay), last max(sched_dep), planes distinct(delay)';

CREATE TABLE IF NOT EXISTS `flights_by_day` ON CLUSTER `main` (
  `carrier` String,
  `day` Date32,
  `origin` Nullable(String),
  `flights` UInt64,
  `late` UInt64,
  `paid` Nullable(Decimal(38, 2)),
  `delay` Nullable(Float64),
  `last` DateTime64(6, 'UTC'),
  `planes` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = Distributed('main', 'flights', 'flights_by_day_local', xxHash64(`carrier`))
COMMENT 'slotline rollup format 1, line flights: flights by carrier, day, origin: flights count, late sum(late), paid sum(paid), delay avg(delay), last max(sched_dep), planes distinct(delay)';

CREATE OR REPLACE VIEW `flights_by_day_now` ON CLUSTER `main` AS
SELECT `carrier`, `day`, `origin`, `flights`, `late`, `paid`, `delay`, `last`, `planes`
FROM `flights_by_day`
WHERE (`carrier`, `day`, `_ver`) GLOBAL IN (SELECT `carrier`, `day`, max(`_ver`) FROM `flights_by_day` GROUP BY `carrier`, `day`)
AND _rows > 0;

CREATE TABLE IF NOT EXISTS `posts_by_month_local` ON CLUSTER `main` (
  `owner` Int64,
  `month` Date32,
  `posts` UInt64,
  `size` Float64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`month`)
ORDER BY (`owner`, `month`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline rollup format 1, line flights: posts by owner, month: posts count, size sum(size)';

CREATE TABLE IF NOT EXISTS `posts_by_month` ON CLUSTER `main` (
  `owner` Int64,
  `month` Date32,
  `posts` UInt64,
  `size` Float64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = Distributed('main', 'flights', 'posts_by_month_local', xxHash64(`owner`))
COMMENT 'slotline rollup format 1, line flights: posts by owner, month: posts count, size sum(size)';

CREATE OR REPLACE VIEW `posts_by_month_now` ON CLUSTER `main` AS
SELECT `owner`, `month`, `posts`, `size`
FROM `posts_by_month`
WHERE (`owner`, `month`, `_ver`) GLOBAL IN (SELECT `owner`, `month`, max(`_ver`) FROM `posts_by_month` GROUP BY `owner`, `month`)
AND _rows > 0;

CREATE TABLE IF NOT EXISTS `visits_by_day_local` ON CLUSTER `main` (
  `owner` Int64,
  `day` Date32,
  `visits` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day`)
ORDER BY (`owner`, `day`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline rollup format 1, line flights: visits by owner, day: visits count';

CREATE TABLE IF NOT EXISTS `visits_by_day` ON CLUSTER `main` (
  `owner` Int64,
  `day` Date32,
  `visits` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = Distributed('main', 'flights', 'visits_by_day_local', xxHash64(`owner`))
COMMENT 'slotline rollup format 1, line flights: visits by owner, day: visits count';

CREATE OR REPLACE VIEW `visits_by_day_now` ON CLUSTER `main` AS
SELECT `owner`, `day`, `visits`
FROM `visits_by_day`
WHERE (`owner`, `day`, `_ver`) GLOBAL IN (SELECT `owner`, `day`, max(`_ver`) FROM `visits_by_day` GROUP BY `owner`, `day`)
AND _rows > 0;

CREATE TABLE IF NOT EXISTS `flights_by_month_local` ON CLUSTER `main` (
  `carrier` String,
  `month` Date32,
  `flights` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplicatedReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`month`)
ORDER BY (`carrier`, `month`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline rollup format 1, line flights: flights by carrier, month: flights count';

CREATE TABLE IF NOT EXISTS `flights_by_month` ON CLUSTER `main` (
  `carrier` String,
  `month` Date32,
  `flights` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = Distributed('main', 'flights', 'flights_by_month_local', xxHash64(`carrier`))
COMMENT 'slotline rollup format 1, line flights: flights by carrier, month: flights count';

CREATE OR REPLACE VIEW `flights_by_month_now` ON CLUSTER `main` AS
SELECT `carrier`, `month`, `flights`
FROM `flights_by_month`
WHERE (`carrier`, `month`, `_ver`) GLOBAL IN (SELECT `carrier`, `month`, max(`_ver`) FROM `flights_by_month` GROUP BY `carrier`, `month`)
AND _rows > 0;

ALTER TABLE `flights_local` ON CLUSTER `main` ADD COLUMN IF NOT EXISTS `late` Bool AFTER `origin`;

ALTER TABLE `flights` ON CLUSTER `main` ADD COLUMN IF NOT EXISTS `late` Bool AFTER `origin`;

ALTER TABLE `flights_local` ON CLUSTER `main` MODIFY SETTING fsync_after_insert = 1;

SELECT table, partition, toString(sum(rows)), toString(sum(bytes_on_disk)) FROM cluster('main', system.parts) WHERE active AND database = 'flights' GROUP BY table, partition ORDER BY table, partition;

SYSTEM SYNC REPLICA ON CLUSTER `main` `flights`.`flights_local` LIGHTWEIGHT;

-- ch1,ch2/flights;

GRANT ON CLUSTER `main` SELECT, INSERT, CREATE TABLE, CREATE VIEW, DROP VIEW, ALTER ADD COLUMN, ALTER SETTINGS, SYSTEM SYNC REPLICA ON `flights`.* TO `the_user`;

GRANT ON CLUSTER `main` CLUSTER, REMOTE ON *.* TO `the_user`;

