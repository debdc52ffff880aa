CREATE TABLE IF NOT EXISTS `flights` (
  `carrier` varchar(8) NOT NULL,
  `flight_id` largeint NOT NULL,
  `_month` date NOT NULL,
  `sched_dep` datetime(6) NOT NULL DEFAULT "1970-01-01 00:00:00",
  `origin` varchar(12) NOT NULL DEFAULT "",
  `cancelled` boolean NOT NULL DEFAULT "0",
  `arr_delay` int NULL,
  `fare` decimal(12,2) NULL,
  `_ver` bigint NOT NULL,
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`flight_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`carrier`,`flight_id`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `flights_now` AS
SELECT `carrier`,`flight_id`,`sched_dep`,`origin`,`cancelled`,`arr_delay`,`fare`,`_month`,`_ver`
FROM `flights`
WHERE `_deleted` = 0;

ALTER VIEW `flights_now` AS
SELECT `carrier`,`flight_id`,`sched_dep`,`origin`,`cancelled`,`arr_delay`,`fare`,`_month`,`_ver`
FROM `flights`
WHERE `_deleted` = 0;

ALTER TABLE `flights` ADD COLUMN `sched_dep` datetime(6) NOT NULL DEFAULT "1970-01-01 00:00:00";
ALTER TABLE `flights` ADD COLUMN `origin` varchar(12) NOT NULL DEFAULT "";
ALTER TABLE `flights` ADD COLUMN `cancelled` boolean NOT NULL DEFAULT "0";
ALTER TABLE `flights` ADD COLUMN `arr_delay` int NULL;
ALTER TABLE `flights` ADD COLUMN `fare` decimal(12,2) NULL;

-- columns: `carrier`,`flight_id`,`_month`,`sched_dep`,`origin`,`cancelled`,`arr_delay`,`fare`,`_ver`,`_deleted`

CREATE TABLE IF NOT EXISTS `days` (
  `carrier` varchar(8) NOT NULL,
  `day_id` int NOT NULL,
  `_month` date NOT NULL,
  `day` date NOT NULL DEFAULT "1970-01-01",
  `_ver` bigint NOT NULL,
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`day_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`carrier`,`day_id`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `days_now` AS
SELECT `carrier`,`day_id`,`day`,`_month`,`_ver`
FROM `days`
WHERE `_deleted` = 0;

ALTER VIEW `days_now` AS
SELECT `carrier`,`day_id`,`day`,`_month`,`_ver`
FROM `days`
WHERE `_deleted` = 0;

ALTER TABLE `days` ADD COLUMN `day` date NOT NULL DEFAULT "1970-01-01";

-- columns: `carrier`,`day_id`,`_month`,`day`,`_ver`,`_deleted`

CREATE TABLE IF NOT EXISTS `scans` (
  `customer` varchar(256) NOT NULL,
  `scan_id` bigint NOT NULL,
  `_month` date NOT NULL,
  `raw` string NOT NULL DEFAULT "",
  `more` string NULL,
  `note` string NOT NULL DEFAULT "",
  `weight` double NOT NULL DEFAULT "0",
  `_ver` bigint NOT NULL,
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`customer`,`scan_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`customer`,`scan_id`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `scans_now` AS
SELECT `customer`,`scan_id`,`raw`,`more`,`note`,`weight`,`_month`,`_ver`
FROM `scans`
WHERE `_deleted` = 0;

ALTER VIEW `scans_now` AS
SELECT `customer`,`scan_id`,`raw`,`more`,`note`,`weight`,`_month`,`_ver`
FROM `scans`
WHERE `_deleted` = 0;

ALTER TABLE `scans` ADD COLUMN `raw` string NOT NULL DEFAULT "";
ALTER TABLE `scans` ADD COLUMN `more` string NULL;
ALTER TABLE `scans` ADD COLUMN `note` string NOT NULL DEFAULT "";
ALTER TABLE `scans` ADD COLUMN `weight` double NOT NULL DEFAULT "0";

-- columns: `customer`,`scan_id`,`_month`,`raw`,`more`,`note`,`weight`,`_ver`,`_deleted`

CREATE TABLE IF NOT EXISTS `passengers` (
  `carrier` varchar(8) NOT NULL,
  `passenger_id` largeint NOT NULL,
  `note` varchar(80) NULL,
  `name` varchar(400) NOT NULL DEFAULT "",
  `_ver` bigint NOT NULL,
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`passenger_id`)
COMMENT 'slotline table format 1, line flights'
DISTRIBUTED BY HASH(`carrier`,`passenger_id`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `passengers_now` AS
SELECT `note`,`carrier`,`passenger_id`,`name`,`_ver`
FROM `passengers`
WHERE `_deleted` = 0;

ALTER VIEW `passengers_now` AS
SELECT `note`,`carrier`,`passenger_id`,`name`,`_ver`
FROM `passengers`
WHERE `_deleted` = 0;

ALTER TABLE `passengers` ADD COLUMN `note` varchar(80) NULL;
ALTER TABLE `passengers` ADD COLUMN `name` varchar(400) NOT NULL DEFAULT "";

-- columns: `carrier`,`passenger_id`,`note`,`name`,`_ver`,`_deleted`

CREATE TABLE IF NOT EXISTS `airports` (
  `code` varchar(12) NOT NULL,
  `name` varchar(320) NULL,
  `_ver` bigint NOT NULL,
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`code`)
COMMENT 'slotline table format 1, line flights'
DISTRIBUTED BY HASH(`code`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `airports_now` AS
SELECT `code`,`name`,`_ver`
FROM `airports`
WHERE `_deleted` = 0;

ALTER VIEW `airports_now` AS
SELECT `code`,`name`,`_ver`
FROM `airports`
WHERE `_deleted` = 0;

ALTER TABLE `airports` ADD COLUMN `name` varchar(320) NULL;

-- columns: `code`,`name`,`_ver`,`_deleted`

-- fe1:8030,fe2:8031/flights
GRANT SELECT_PRIV, LOAD_PRIV, CREATE_PRIV, ALTER_PRIV, SHOW_VIEW_PRIV ON internal.`flights`.* TO 'slotline';
