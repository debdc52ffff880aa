CREATE TABLE IF NOT EXISTS `flights__rb_rb19c2_1` (
  `carrier` varchar(8) NOT NULL,
  `flight_id` largeint NOT NULL,
  `_month` date NOT NULL,
  `sched_dep` datetime(6) NOT NULL DEFAULT "1970-01-01 00:00:00",
  `origin` varchar(12) NOT NULL DEFAULT "",
  `cancelled` boolean NOT NULL DEFAULT "0",
  `arr_delay` int NULL,
  `fare` decimal(12,2) NULL,
  `_ver` bigint NOT NULL COMMENT 'IDENTITY',
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`flight_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`carrier`,`flight_id`) BUCKETS AUTO
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (
SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (
SELECT `carrier`,`flight_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`flight_id`), ',', DATE_FORMAT(`sched_dep`, '%Y-%m-%d %H:%i:%s.%f'), ',', CONCAT(LENGTH(`origin`), ':', `origin`), ',', IF(`cancelled`, '1', '0'), ',', IFNULL(CONCAT(`arr_delay`), 'N'), ',', IFNULL(CONCAT(`fare`), 'N')), 256) AS `_h`, 1 AS `_side` FROM `flights` WHERE `_month` IN ('2026-11-01')
UNION ALL
SELECT `carrier`,`flight_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`flight_id`), ',', DATE_FORMAT(`sched_dep`, '%Y-%m-%d %H:%i:%s.%f'), ',', CONCAT(LENGTH(`origin`), ':', `origin`), ',', IF(`cancelled`, '1', '0'), ',', IFNULL(CONCAT(`arr_delay`), 'N'), ',', IFNULL(CONCAT(`fare`), 'N')), 256) AS `_h`, 0 AS `_side` FROM `flights__rb_rb19c2_1` WHERE `_month` IN ('2026-11-01')
) AS u GROUP BY `carrier`,`flight_id`,`_month`
) AS g;

INSERT INTO `flights` TEMPORARY PARTITION (`flights__rb_rb19c2_1`) WITH LABEL `month_1` (`a`,`b`)
SELECT `a`,`b`
FROM `flights__rb_rb19c2_1`
WHERE `_month` IN ('2026-11-01');

CREATE TABLE IF NOT EXISTS `days__rb_rb19c2_1` (
  `carrier` varchar(8) NOT NULL,
  `day_id` int NOT NULL,
  `_month` date NOT NULL,
  `day` date NOT NULL DEFAULT "1970-01-01",
  `_ver` bigint NOT NULL COMMENT 'IDENTITY',
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`day_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`carrier`,`day_id`) BUCKETS AUTO
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (
SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (
SELECT `carrier`,`day_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`day_id`), ',', CONCAT(`day`)), 256) AS `_h`, 1 AS `_side` FROM `days` WHERE `_month` IN ('2026-11-01')
UNION ALL
SELECT `carrier`,`day_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`day_id`), ',', CONCAT(`day`)), 256) AS `_h`, 0 AS `_side` FROM `days__rb_rb19c2_1` WHERE `_month` IN ('2026-11-01')
) AS u GROUP BY `carrier`,`day_id`,`_month`
) AS g;

INSERT INTO `days` TEMPORARY PARTITION (`days__rb_rb19c2_1`) WITH LABEL `month_1` (`a`,`b`)
SELECT `a`,`b`
FROM `days__rb_rb19c2_1`
WHERE `_month` IN ('2026-11-01');

CREATE TABLE IF NOT EXISTS `scans__rb_rb19c2_1` (
  `customer` varchar(256) NOT NULL,
  `scan_id` bigint NOT NULL,
  `_month` date NOT NULL,
  `raw` string NOT NULL DEFAULT "",
  `more` string NULL,
  `note` string NOT NULL DEFAULT "",
  `weight` double NOT NULL DEFAULT "0",
  `_ver` bigint NOT NULL COMMENT 'IDENTITY',
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`customer`,`scan_id`,`_month`)
COMMENT 'slotline table format 1, line flights'
AUTO PARTITION BY RANGE (date_trunc(`_month`, 'month')) ()
DISTRIBUTED BY HASH(`customer`,`scan_id`) BUCKETS AUTO
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (
SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (
SELECT `customer`,`scan_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`customer`), ':', `customer`), ',', CONCAT(`scan_id`), ',', CONCAT(LENGTH(`raw`), ':', `raw`), ',', IFNULL(CONCAT(LENGTH(`more`), ':', `more`), 'N'), ',', CONCAT(LENGTH(`note`), ':', `note`), ',', CONCAT(`weight`), ',', IFNULL(CONCAT(`weight` - CAST(CONCAT(`weight`) AS DOUBLE)), 'N')), 256) AS `_h`, 1 AS `_side` FROM `scans` WHERE `_month` IN ('2026-11-01')
UNION ALL
SELECT `customer`,`scan_id`,`_month`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`customer`), ':', `customer`), ',', CONCAT(`scan_id`), ',', CONCAT(LENGTH(`raw`), ':', `raw`), ',', IFNULL(CONCAT(LENGTH(`more`), ':', `more`), 'N'), ',', CONCAT(LENGTH(`note`), ':', `note`), ',', CONCAT(`weight`), ',', IFNULL(CONCAT(`weight` - CAST(CONCAT(`weight`) AS DOUBLE)), 'N')), 256) AS `_h`, 0 AS `_side` FROM `scans__rb_rb19c2_1` WHERE `_month` IN ('2026-11-01')
) AS u GROUP BY `customer`,`scan_id`,`_month`
) AS g;

INSERT INTO `scans` TEMPORARY PARTITION (`scans__rb_rb19c2_1`) WITH LABEL `month_1` (`a`,`b`)
SELECT `a`,`b`
FROM `scans__rb_rb19c2_1`
WHERE `_month` IN ('2026-11-01');

CREATE TABLE IF NOT EXISTS `passengers__rb_rb19c2_1` (
  `carrier` varchar(8) NOT NULL,
  `passenger_id` largeint NOT NULL,
  `note` varchar(80) NULL,
  `name` varchar(400) NOT NULL DEFAULT "",
  `_ver` bigint NOT NULL COMMENT 'IDENTITY',
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`passenger_id`)
COMMENT 'slotline table format 1, line flights'
DISTRIBUTED BY HASH(`carrier`,`passenger_id`) BUCKETS AUTO
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (
SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (
SELECT `carrier`,`passenger_id`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', IFNULL(CONCAT(LENGTH(`note`), ':', `note`), 'N'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`passenger_id`), ',', CONCAT(LENGTH(`name`), ':', `name`)), 256) AS `_h`, 1 AS `_side` FROM `passengers` WHERE 1 = 1
UNION ALL
SELECT `carrier`,`passenger_id`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', IFNULL(CONCAT(LENGTH(`note`), ':', `note`), 'N'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`passenger_id`), ',', CONCAT(LENGTH(`name`), ':', `name`)), 256) AS `_h`, 0 AS `_side` FROM `passengers__rb_rb19c2_1` WHERE 1 = 1
) AS u GROUP BY `carrier`,`passenger_id`
) AS g;

CREATE TABLE IF NOT EXISTS `airports__rb_rb19c2_1` (
  `code` varchar(12) NOT NULL,
  `name` varchar(320) NULL,
  `_ver` bigint NOT NULL COMMENT 'IDENTITY',
  `_deleted` boolean NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`code`)
COMMENT 'slotline table format 1, line flights'
DISTRIBUTED BY HASH(`code`) BUCKETS AUTO
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

SELECT COUNT(*), SUM(IF(`_n` = 2 AND `_low` = `_high`, 1, 0)), SUM(IF(`_first` = 0, 1, 0)), SUM(IF(`_first` = `_n`, 1, 0)) FROM (
SELECT COUNT(*) AS `_n`, MIN(`_h`) AS `_low`, MAX(`_h`) AS `_high`, SUM(`_side`) AS `_first` FROM (
SELECT `code`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`code`), ':', `code`), ',', IFNULL(CONCAT(LENGTH(`name`), ':', `name`), 'N')), 256) AS `_h`, 1 AS `_side` FROM `airports` WHERE 1 = 1
UNION ALL
SELECT `code`, SHA2(CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`code`), ':', `code`), ',', IFNULL(CONCAT(LENGTH(`name`), ':', `name`), 'N')), 256) AS `_h`, 0 AS `_side` FROM `airports__rb_rb19c2_1` WHERE 1 = 1
) AS u GROUP BY `code`
) AS g;

