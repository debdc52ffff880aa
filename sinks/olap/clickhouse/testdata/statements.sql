CREATE TABLE IF NOT EXISTS `flights` (
  `carrier` String,
  `flight_id` UInt64,
  `sched_dep` DateTime64(6, 'UTC'),
  `origin` String,
  `cancelled` Bool,
  `arr_delay` Nullable(Int32),
  `fare` Nullable(Decimal(12, 2)),
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`sched_dep`)
ORDER BY (`carrier`, `flight_id`)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `flights_now` AS
SELECT `carrier`, `flight_id`, `sched_dep`, `origin`, `cancelled`, `arr_delay`, `fare`, `_ver`
FROM `flights` FINAL
WHERE `_deleted` = 0;

INSERT INTO `flights` (`carrier`, `flight_id`, `sched_dep`, `origin`, `cancelled`, `arr_delay`, `fare`, `_ver`, `_deleted`) VALUES;

CREATE TABLE IF NOT EXISTS `days` (
  `carrier` String,
  `day_id` Int32,
  `day` Date32,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day`)
ORDER BY (`carrier`, `day_id`)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `days_now` AS
SELECT `carrier`, `day_id`, `day`, `_ver`
FROM `days` FINAL
WHERE `_deleted` = 0;

INSERT INTO `days` (`carrier`, `day_id`, `day`, `_ver`, `_deleted`) VALUES;

CREATE TABLE IF NOT EXISTS `scans` (
  `customer` String,
  `scan_id` Int64,
  `raw` String,
  `more` Nullable(String),
  `note` String,
  `weight` Float64,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`scan_id`, 22)) + 1577836800000, 'UTC'))
ORDER BY (`customer`, `scan_id`)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `scans_now` AS
SELECT `customer`, `scan_id`, `raw`, `more`, `note`, `weight`, `_ver`
FROM `scans` FINAL
WHERE `_deleted` = 0;

INSERT INTO `scans` (`customer`, `scan_id`, `raw`, `more`, `note`, `weight`, `_ver`, `_deleted`) VALUES;

CREATE TABLE IF NOT EXISTS `passengers` (
  `carrier` String,
  `passenger_id` UInt64,
  `name` String,
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(`_ver`)
ORDER BY (`carrier`, `passenger_id`)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `passengers_now` AS
SELECT `carrier`, `passenger_id`, `name`, `_ver`
FROM `passengers` FINAL
WHERE `_deleted` = 0;

INSERT INTO `passengers` (`carrier`, `passenger_id`, `name`, `_ver`, `_deleted`) VALUES;

CREATE TABLE IF NOT EXISTS `airports` (
  `code` String,
  `name` Nullable(String),
  `_ver` UInt64,
  `_deleted` UInt8
)
ENGINE = ReplacingMergeTree(`_ver`)
ORDER BY (`code`)
SETTINGS non_replicated_deduplication_window = 1000, fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline table format 1, line flights';

CREATE OR REPLACE VIEW `airports_now` AS
SELECT `code`, `name`, `_ver`
FROM `airports` FINAL
WHERE `_deleted` = 0;

INSERT INTO `airports` (`code`, `name`, `_ver`, `_deleted`) VALUES;

-- ch1,ch2:9001/flights
GRANT SELECT, INSERT, CREATE TABLE, CREATE VIEW, DROP VIEW, ALTER ADD COLUMN, ALTER SETTINGS ON `flights`.* TO `slotline`;
