SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (
SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (
SELECT `carrier`, `flight_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `flight_id`, `sched_dep`, `origin`, `cancelled`, `arr_delay`, `fare`))) AS _sum, 1 AS _side FROM `flights` FINAL WHERE toYYYYMM(`sched_dep`) = 202611
UNION ALL
SELECT `carrier`, `flight_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `flight_id`, `sched_dep`, `origin`, `cancelled`, `arr_delay`, `fare`))) AS _sum, 2 AS _side FROM `flights__rb_rb19c2_1` FINAL WHERE toYYYYMM(`sched_dep`) = 202611
) GROUP BY `carrier`, `flight_id`
) SETTINGS max_bytes_before_external_group_by = 1000000000;

SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (
SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (
SELECT `carrier`, `day_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `day_id`, `day`))) AS _sum, 1 AS _side FROM `days` FINAL WHERE toYYYYMM(`day`) = 202611
UNION ALL
SELECT `carrier`, `day_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `day_id`, `day`))) AS _sum, 2 AS _side FROM `days__rb_rb19c2_1` FINAL WHERE toYYYYMM(`day`) = 202611
) GROUP BY `carrier`, `day_id`
) SETTINGS max_bytes_before_external_group_by = 1000000000;

SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (
SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (
SELECT `customer`, `scan_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `customer`, `scan_id`, `raw`, `more`, `note`, `weight`))) AS _sum, 1 AS _side FROM `scans` FINAL WHERE toYYYYMM(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`scan_id`, 22)) + 1577836800000, 'UTC')) = 202611
UNION ALL
SELECT `customer`, `scan_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `customer`, `scan_id`, `raw`, `more`, `note`, `weight`))) AS _sum, 2 AS _side FROM `scans__rb_rb19c2_1` FINAL WHERE toYYYYMM(fromUnixTimestamp64Milli(toInt64(bitShiftRight(`scan_id`, 22)) + 1577836800000, 'UTC')) = 202611
) GROUP BY `customer`, `scan_id`
) SETTINGS max_bytes_before_external_group_by = 1000000000;

SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (
SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (
SELECT `carrier`, `passenger_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `passenger_id`, `name`))) AS _sum, 1 AS _side FROM `passengers` FINAL WHERE 1
UNION ALL
SELECT `carrier`, `passenger_id`, sipHash64(toString(tuple(`_ver`, `_deleted`, `carrier`, `passenger_id`, `name`))) AS _sum, 2 AS _side FROM `passengers__rb_rb19c2_1` FINAL WHERE 1
) GROUP BY `carrier`, `passenger_id`
) SETTINGS max_bytes_before_external_group_by = 1000000000;

SELECT toString(count()), toString(countIf(_n = 2 AND _x = 0)), toString(countIf(_first = 0)), toString(countIf(_first = _n)) FROM (
SELECT count() AS _n, groupBitXor(_sum) AS _x, countIf(_side = 1) AS _first FROM (
SELECT `code`, sipHash64(toString(tuple(`_ver`, `_deleted`, `code`, `name`))) AS _sum, 1 AS _side FROM `airports` FINAL WHERE 1
UNION ALL
SELECT `code`, sipHash64(toString(tuple(`_ver`, `_deleted`, `code`, `name`))) AS _sum, 2 AS _side FROM `airports__rb_rb19c2_1` FINAL WHERE 1
) GROUP BY `code`
) SETTINGS max_bytes_before_external_group_by = 1000000000;

