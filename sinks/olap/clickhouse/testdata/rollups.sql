CREATE TABLE IF NOT EXISTS `flights_by_day` (
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
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day`)
ORDER BY (`carrier`, `day`, `origin`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, allow_nullable_key = 1
COMMENT 'slotline rollup format 1, line flights: flights by carrier, day, origin: flights count, late sum(late), paid sum(paid), delay avg(delay), last max(sched_dep), planes distinct(delay)';

CREATE OR REPLACE VIEW `flights_by_day_now` AS
SELECT `carrier`, `day`, `origin`, `flights`, `late`, `paid`, `delay`, `last`, `planes`
FROM `flights_by_day`
WHERE (`carrier`, `day`, `_ver`) IN (SELECT `carrier`, `day`, max(`_ver`) FROM `flights_by_day` GROUP BY `carrier`, `day`)
AND _rows > 0;

INSERT INTO `flights_by_day` (`carrier`, `day`, `origin`, `flights`, `late`, `paid`, `delay`, `last`, `planes`, `_rows`, `_ver`)
SELECT _k0, _k1, _k2, countIf(_in), sumIf(_m1, _in), sumIf(_m2, _in), avgIf(_m3, _in), maxIf(_m4, _in), uniqExactIf(_m5, _in), countIf(_in), 1700000000000001 FROM (
SELECT `carrier` AS _k0, toDate32(`sched_dep`) AS _k1, `origin` AS _k2, toUInt8(`late`) AS _m1, `paid` AS _m2, `delay` AS _m3, `sched_dep` AS _m4, `delay` AS _m5, 1 AS _in
FROM `flights` FINAL
WHERE `sched_dep` >= toDateTime64('2026-11-29 00:00:00', 6, 'UTC') AND `sched_dep` < toDateTime64('2026-12-01 00:00:00', 6, 'UTC') AND `carrier` IN ('U\'A') AND (`carrier`, toDate32(`sched_dep`)) IN (('U\'A', toDate32('2026-11-30')), ('U\'A', toDate32('2026-11-29'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'String'), _pair.2, defaultValueOfTypeName('Nullable(String)'), defaultValueOfTypeName('UInt8'), defaultValueOfTypeName('Nullable(Decimal(9, 2))'), defaultValueOfTypeName('Nullable(Int32)'), defaultValueOfTypeName('DateTime64(6, \'UTC\')'), defaultValueOfTypeName('Nullable(Int32)'), 0 FROM (SELECT arrayJoin([('U\'A', toDate32('2026-11-30')), ('U\'A', toDate32('2026-11-29'))]) AS _pair)
) GROUP BY _k0, _k1, _k2;

INSERT INTO `flights_by_day` (`carrier`, `day`, `origin`, `flights`, `late`, `paid`, `delay`, `last`, `planes`, `_rows`, `_ver`)
SELECT _k0, _k1, _k2, countIf(_in), sumIf(_m1, _in), sumIf(_m2, _in), avgIf(_m3, _in), maxIf(_m4, _in), uniqExactIf(_m5, _in), countIf(_in), 1700000000000001 FROM (
SELECT `carrier` AS _k0, toDate32(`sched_dep`) AS _k1, `origin` AS _k2, toUInt8(`late`) AS _m1, `paid` AS _m2, `delay` AS _m3, `sched_dep` AS _m4, `delay` AS _m5, 1 AS _in
FROM `flights` FINAL
WHERE `sched_dep` >= toDateTime64('2026-12-01 00:00:00', 6, 'UTC') AND `sched_dep` < toDateTime64('2026-12-02 00:00:00', 6, 'UTC') AND `carrier` IN ('U\'A') AND (`carrier`, toDate32(`sched_dep`)) IN (('U\'A', toDate32('2026-12-01'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'String'), _pair.2, defaultValueOfTypeName('Nullable(String)'), defaultValueOfTypeName('UInt8'), defaultValueOfTypeName('Nullable(Decimal(9, 2))'), defaultValueOfTypeName('Nullable(Int32)'), defaultValueOfTypeName('DateTime64(6, \'UTC\')'), defaultValueOfTypeName('Nullable(Int32)'), 0 FROM (SELECT arrayJoin([('U\'A', toDate32('2026-12-01'))]) AS _pair)
) GROUP BY _k0, _k1, _k2;

CREATE TABLE IF NOT EXISTS `posts_by_month` (
  `owner` Int64,
  `month` Date32,
  `posts` UInt64,
  `size` Float64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`month`)
ORDER BY (`owner`, `month`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline rollup format 1, line flights: posts by owner, month: posts count, size sum(size)';

CREATE OR REPLACE VIEW `posts_by_month_now` AS
SELECT `owner`, `month`, `posts`, `size`
FROM `posts_by_month`
WHERE (`owner`, `month`, `_ver`) IN (SELECT `owner`, `month`, max(`_ver`) FROM `posts_by_month` GROUP BY `owner`, `month`)
AND _rows > 0;

INSERT INTO `posts_by_month` (`owner`, `month`, `posts`, `size`, `_rows`, `_ver`)
SELECT _k0, _k1, countIf(_in), sumIf(_m1, _in), countIf(_in), 1700000000000001 FROM (
SELECT `owner` AS _k0, subtractDays(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC')), toDayOfMonth(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC'))) - 1) AS _k1, `size` AS _m1, 1 AS _in
FROM `posts` FINAL
WHERE `post` >= 904520112537600000 AND `post` < 915391748505600000 AND `owner` IN (-7) AND (`owner`, subtractDays(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC')), toDayOfMonth(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC'))) - 1)) IN ((-7, toDate32('2026-11-01'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'Int64'), _pair.2, defaultValueOfTypeName('Float64'), 0 FROM (SELECT arrayJoin([(-7, toDate32('2026-11-01'))]) AS _pair)
) GROUP BY _k0, _k1;

INSERT INTO `posts_by_month` (`owner`, `month`, `posts`, `size`, `_rows`, `_ver`)
SELECT _k0, _k1, countIf(_in), sumIf(_m1, _in), countIf(_in), 1700000000000001 FROM (
SELECT `owner` AS _k0, subtractDays(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC')), toDayOfMonth(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC'))) - 1) AS _k1, `size` AS _m1, 1 AS _in
FROM `posts` FINAL
WHERE `post` >= 915391748505600000 AND `post` < 926625772339200000 AND `owner` IN (-7) AND (`owner`, subtractDays(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC')), toDayOfMonth(toDate32(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`post`, 22)) + 1577836800000, 'UTC'))) - 1)) IN ((-7, toDate32('2026-12-01'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'Int64'), _pair.2, defaultValueOfTypeName('Float64'), 0 FROM (SELECT arrayJoin([(-7, toDate32('2026-12-01'))]) AS _pair)
) GROUP BY _k0, _k1;

CREATE TABLE IF NOT EXISTS `visits_by_day` (
  `owner` Int64,
  `day` Date32,
  `visits` UInt64,
  `_rows` UInt64,
  `_ver` UInt64
)
ENGINE = ReplacingMergeTree(`_ver`)
PARTITION BY toYYYYMM(`day`)
ORDER BY (`owner`, `day`)
SETTINGS fsync_after_insert = 1, fsync_part_directory = 1
COMMENT 'slotline rollup format 1, line flights: visits by owner, day: visits count';

CREATE OR REPLACE VIEW `visits_by_day_now` AS
SELECT `owner`, `day`, `visits`
FROM `visits_by_day`
WHERE (`owner`, `day`, `_ver`) IN (SELECT `owner`, `day`, max(`_ver`) FROM `visits_by_day` GROUP BY `owner`, `day`)
AND _rows > 0;

INSERT INTO `visits_by_day` (`owner`, `day`, `visits`, `_rows`, `_ver`)
SELECT _k0, _k1, countIf(_in), countIf(_in), 1700000000000001 FROM (
SELECT `owner` AS _k0, `day_of` AS _k1, 1 AS _in
FROM `visits` FINAL
WHERE `day_of` >= toDate32('2026-11-29') AND `day_of` < toDate32('2026-12-01') AND `owner` IN (-7) AND (`owner`, `day_of`) IN ((-7, toDate32('2026-11-30')), (-7, toDate32('2026-11-29'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'Int64'), _pair.2, 0 FROM (SELECT arrayJoin([(-7, toDate32('2026-11-30')), (-7, toDate32('2026-11-29'))]) AS _pair)
) GROUP BY _k0, _k1;

INSERT INTO `visits_by_day` (`owner`, `day`, `visits`, `_rows`, `_ver`)
SELECT _k0, _k1, countIf(_in), countIf(_in), 1700000000000001 FROM (
SELECT `owner` AS _k0, `day_of` AS _k1, 1 AS _in
FROM `visits` FINAL
WHERE `day_of` >= toDate32('2026-12-01') AND `day_of` < toDate32('2026-12-02') AND `owner` IN (-7) AND (`owner`, `day_of`) IN ((-7, toDate32('2026-12-01'))) AND `_deleted` = 0
UNION ALL
SELECT CAST(_pair.1, 'Int64'), _pair.2, 0 FROM (SELECT arrayJoin([(-7, toDate32('2026-12-01'))]) AS _pair)
) GROUP BY _k0, _k1;

