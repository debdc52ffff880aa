CREATE TABLE IF NOT EXISTS `flights_by_day` (
  `carrier` varchar(8) NOT NULL,
  `day` date NOT NULL,
  `origin` varchar(12) NULL,
  `seal` varchar(28) NOT NULL,
  `flights` bigint NOT NULL,
  `late` bigint NULL,
  `paid` decimal(38,2) NULL,
  `delay` double NULL,
  `last` datetime(6) NULL,
  `planes` bigint NOT NULL,
  `first_seal` string NULL,
  `_rows` bigint NOT NULL,
  `_ver` bigint NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`carrier`,`day`,`origin`,`seal`)
COMMENT 'slotline rollup format 1, line flights: flights by carrier, day, origin, seal: flights count, late sum(late), paid sum(paid), delay avg(delay), last max(sched_dep), planes distinct(delay), first_seal min(seal)'
AUTO PARTITION BY RANGE (date_trunc(`day`, 'month')) ()
DISTRIBUTED BY HASH(`carrier`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `flights_by_day_now` AS
SELECT r.`carrier` AS `carrier`, r.`day` AS `day`, r.`origin` AS `origin`, r.`seal` AS `seal`, r.`flights` AS `flights`, r.`late` AS `late`, r.`paid` AS `paid`, r.`delay` AS `delay`, r.`last` AS `last`, r.`planes` AS `planes`, r.`first_seal` AS `first_seal`
FROM `flights_by_day` r JOIN (SELECT `carrier`, `day`, MAX(`_ver`) AS `_ver` FROM `flights_by_day` GROUP BY `carrier`, `day`) s
ON r.`carrier` = s.`carrier` AND r.`day` = s.`day` AND r.`_ver` = s.`_ver`
WHERE r.`_rows` > 0;

INSERT INTO `flights_by_day` WITH LABEL `rollup_1e3f3d233ceb0d4dde1b075b6f5a1e21` (`carrier`,`day`,`origin`,`seal`,`flights`,`late`,`paid`,`delay`,`last`,`planes`,`first_seal`,`_rows`,`_ver`)
SELECT `carrier`, DATE(`sched_dep`), `origin`, `seal`, COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), SUM(CASE WHEN `_deleted` = 0 THEN (CASE WHEN `late` = 1 THEN 1 WHEN `late` = 0 THEN 0 END) END), SUM(CASE WHEN `_deleted` = 0 THEN `paid` END), AVG(CASE WHEN `_deleted` = 0 THEN `delay` * 1e0 END), MAX(CASE WHEN `_deleted` = 0 THEN `sched_dep` END), COUNT(DISTINCT CASE WHEN `_deleted` = 0 THEN `delay` END), TO_BASE64(MIN(CASE WHEN `_deleted` = 0 THEN FROM_BASE64(`seal`) END)), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `flights`
WHERE `_month` = '2026-11-01' AND ((`carrier` IN ('U''A') AND `sched_dep` >= '2026-11-29 00:00:00' AND `sched_dep` < '2026-11-30 00:00:00') OR (`carrier` IN ('U''A') AND `sched_dep` >= '2026-11-30 00:00:00' AND `sched_dep` < '2026-12-01 00:00:00'))
GROUP BY `carrier`, DATE(`sched_dep`), `origin`, `seal`;

INSERT INTO `flights_by_day` WITH LABEL `rollup_f8b0adb42f21d8cf17dec9dea68da2e3` (`carrier`,`day`,`origin`,`seal`,`flights`,`late`,`paid`,`delay`,`last`,`planes`,`first_seal`,`_rows`,`_ver`)
SELECT `carrier`, DATE(`sched_dep`), `origin`, `seal`, COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), SUM(CASE WHEN `_deleted` = 0 THEN (CASE WHEN `late` = 1 THEN 1 WHEN `late` = 0 THEN 0 END) END), SUM(CASE WHEN `_deleted` = 0 THEN `paid` END), AVG(CASE WHEN `_deleted` = 0 THEN `delay` * 1e0 END), MAX(CASE WHEN `_deleted` = 0 THEN `sched_dep` END), COUNT(DISTINCT CASE WHEN `_deleted` = 0 THEN `delay` END), TO_BASE64(MIN(CASE WHEN `_deleted` = 0 THEN FROM_BASE64(`seal`) END)), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `flights`
WHERE `_month` = '2026-12-01' AND ((`carrier` IN ('U''A') AND `sched_dep` >= '2026-12-01 00:00:00' AND `sched_dep` < '2026-12-02 00:00:00'))
GROUP BY `carrier`, DATE(`sched_dep`), `origin`, `seal`;

CREATE TABLE IF NOT EXISTS `posts_by_day` (
  `owner` bigint NOT NULL,
  `day` date NOT NULL,
  `posts` bigint NOT NULL,
  `size` double NULL,
  `_rows` bigint NOT NULL,
  `_ver` bigint NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`owner`,`day`)
COMMENT 'slotline rollup format 1, line flights: posts by owner, day: posts count, size sum(size)'
AUTO PARTITION BY RANGE (date_trunc(`day`, 'month')) ()
DISTRIBUTED BY HASH(`owner`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `posts_by_day_now` AS
SELECT r.`owner` AS `owner`, r.`day` AS `day`, r.`posts` AS `posts`, r.`size` AS `size`
FROM `posts_by_day` r JOIN (SELECT `owner`, `day`, MAX(`_ver`) AS `_ver` FROM `posts_by_day` GROUP BY `owner`, `day`) s
ON r.`owner` = s.`owner` AND r.`day` = s.`day` AND r.`_ver` = s.`_ver`
WHERE r.`_rows` > 0;

INSERT INTO `posts_by_day` WITH LABEL `rollup_56188ffbace0b2d2bf2673b61cbc7de8` (`owner`,`day`,`posts`,`size`,`_rows`,`_ver`)
SELECT `owner`, DATE(DATE_ADD('1970-01-01', INTERVAL (`post` DIV 4194304 + 1577836800000) DIV 86400000 DAY)), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), SUM(CASE WHEN `_deleted` = 0 THEN `size` END), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `posts`
WHERE `_month` = '2026-11-01' AND ((`owner` IN (-7) AND `post` >= 914666972774400000 AND `post` < 915029360640000000) OR (`owner` IN (-7) AND `post` >= 915029360640000000 AND `post` < 915391748505600000))
GROUP BY `owner`, DATE(DATE_ADD('1970-01-01', INTERVAL (`post` DIV 4194304 + 1577836800000) DIV 86400000 DAY));

INSERT INTO `posts_by_day` WITH LABEL `rollup_458cf2b1eee8260b965f52c03da078be` (`owner`,`day`,`posts`,`size`,`_rows`,`_ver`)
SELECT `owner`, DATE(DATE_ADD('1970-01-01', INTERVAL (`post` DIV 4194304 + 1577836800000) DIV 86400000 DAY)), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), SUM(CASE WHEN `_deleted` = 0 THEN `size` END), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `posts`
WHERE `_month` = '2026-12-01' AND ((`owner` IN (-7) AND `post` >= 915391748505600000 AND `post` < 915754136371200000))
GROUP BY `owner`, DATE(DATE_ADD('1970-01-01', INTERVAL (`post` DIV 4194304 + 1577836800000) DIV 86400000 DAY));

CREATE TABLE IF NOT EXISTS `visits_by_month` (
  `owner` bigint NOT NULL,
  `month` date NOT NULL,
  `visits` bigint NOT NULL,
  `_rows` bigint NOT NULL,
  `_ver` bigint NOT NULL
) ENGINE=OLAP
UNIQUE KEY(`owner`,`month`)
COMMENT 'slotline rollup format 1, line flights: visits by owner, month: visits count'
AUTO PARTITION BY RANGE (date_trunc(`month`, 'month')) ()
DISTRIBUTED BY HASH(`owner`) BUCKETS 8
PROPERTIES ("replication_num" = "3", "enable_unique_key_merge_on_write" = "true", "function_column.sequence_col" = "_ver");

CREATE VIEW `visits_by_month_now` AS
SELECT r.`owner` AS `owner`, r.`month` AS `month`, r.`visits` AS `visits`
FROM `visits_by_month` r JOIN (SELECT `owner`, `month`, MAX(`_ver`) AS `_ver` FROM `visits_by_month` GROUP BY `owner`, `month`) s
ON r.`owner` = s.`owner` AND r.`month` = s.`month` AND r.`_ver` = s.`_ver`
WHERE r.`_rows` > 0;

INSERT INTO `visits_by_month` WITH LABEL `rollup_dc33bbfe30a44672aeddcf5448b3499f` (`owner`,`month`,`visits`,`_rows`,`_ver`)
SELECT `owner`, `_month`, COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `visits`
WHERE `_month` = '2026-11-01' AND ((`owner` IN (-7)))
GROUP BY `owner`, `_month`;

INSERT INTO `visits_by_month` WITH LABEL `rollup_6c7f04e2fe72a734403c659506af7c38` (`owner`,`month`,`visits`,`_rows`,`_ver`)
SELECT `owner`, `_month`, COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), COUNT(CASE WHEN `_deleted` = 0 THEN 1 END), 1700000000000001
FROM `visits`
WHERE `_month` = '2026-12-01' AND ((`owner` IN (-7)))
GROUP BY `owner`, `_month`;

