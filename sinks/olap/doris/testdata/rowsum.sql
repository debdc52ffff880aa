SELECT `_m`, `_t`, COUNT(*), SUM(CAST(CONV(LEFT(`_h`, 8), 16, 10) AS DECIMAL(20,0))), SUM(CAST(CONV(SUBSTRING(`_h`, 9, 8), 16, 10) AS DECIMAL(20,0))) FROM (SELECT `_month` AS `_m`, `carrier` AS `_t`, SHA2(IF(`_ver` % 2 = 1, CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`flight_id`)), CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`flight_id`), ',', DATE_FORMAT(`sched_dep`, '%Y-%m-%d %H:%i:%s.%f'), ',', CONCAT(LENGTH(`origin`), ':', `origin`), ',', IF(`cancelled`, '1', '0'), ',', IFNULL(CONCAT(`arr_delay`), 'N'), ',', IFNULL(CONCAT(`fare`), 'N'))), 256) AS `_h` FROM `flights` WHERE `_month` IN ('2026-11-01') AND `carrier` > '7' AND `carrier` <= '9') AS s GROUP BY `_m`, `_t` ORDER BY `_m`, `_t` LIMIT 500;

SELECT `flight_id`, '', `_ver`, `_deleted`, `carrier`, `flight_id`, `sched_dep`, `origin`, `cancelled`, `arr_delay`, `fare` FROM `flights` WHERE `_month` IN ('2026-11-01') AND `carrier` = '7' AND `flight_id` > 7 ORDER BY `flight_id` LIMIT 5000;

SELECT `_m`, `_t`, COUNT(*), SUM(CAST(CONV(LEFT(`_h`, 8), 16, 10) AS DECIMAL(20,0))), SUM(CAST(CONV(SUBSTRING(`_h`, 9, 8), 16, 10) AS DECIMAL(20,0))) FROM (SELECT `_month` AS `_m`, `carrier` AS `_t`, SHA2(IF(`_ver` % 2 = 1, CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`day_id`)), CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`day_id`), ',', CONCAT(`day`))), 256) AS `_h` FROM `days` WHERE `_month` IN ('2026-11-01') AND `carrier` > '7' AND `carrier` <= '9') AS s GROUP BY `_m`, `_t` ORDER BY `_m`, `_t` LIMIT 500;

SELECT `day_id`, '', `_ver`, `_deleted`, `carrier`, `day_id`, `day` FROM `days` WHERE `_month` IN ('2026-11-01') AND `carrier` = '7' AND `day_id` > 7 ORDER BY `day_id` LIMIT 5000;

SELECT `_m`, `_t`, COUNT(*), 0, 0 FROM (SELECT `_month` AS `_m`, `customer` AS `_t`, '' AS `_h` FROM `scans` WHERE `_month` IN ('2026-11-01') AND `customer` > '7' AND `customer` <= '9') AS s GROUP BY `_m`, `_t` ORDER BY `_m`, `_t` LIMIT 500;

SELECT `scan_id`, '', `_ver`, `_deleted`, `customer`, `scan_id`, `raw`, `more`, `note`, CONCAT(`weight`), `weight` - CAST(CONCAT(`weight`) AS DOUBLE) FROM `scans` WHERE `_month` IN ('2026-11-01') AND `customer` = '7' AND `scan_id` > 7 ORDER BY `scan_id` LIMIT 5000;

SELECT '', `_t`, COUNT(*), SUM(CAST(CONV(LEFT(`_h`, 8), 16, 10) AS DECIMAL(20,0))), SUM(CAST(CONV(SUBSTRING(`_h`, 9, 8), 16, 10) AS DECIMAL(20,0))) FROM (SELECT `carrier` AS `_t`, SHA2(IF(`_ver` % 2 = 1, CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`passenger_id`)), CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', IFNULL(CONCAT(LENGTH(`note`), ':', `note`), 'N'), ',', CONCAT(LENGTH(`carrier`), ':', `carrier`), ',', CONCAT(`passenger_id`), ',', CONCAT(LENGTH(`name`), ':', `name`))), 256) AS `_h` FROM `passengers` WHERE 1 = 1 AND `carrier` > '7' AND `carrier` <= '9') AS s GROUP BY `_t` ORDER BY `_t` LIMIT 500;

SELECT `passenger_id`, '', `_ver`, `_deleted`, `note`, `carrier`, `passenger_id`, `name` FROM `passengers` WHERE 1 = 1 AND `carrier` = '7' AND `passenger_id` > 7 ORDER BY `passenger_id` LIMIT 5000;

SELECT '', '', COUNT(*), SUM(CAST(CONV(LEFT(`_h`, 8), 16, 10) AS DECIMAL(20,0))), SUM(CAST(CONV(SUBSTRING(`_h`, 9, 8), 16, 10) AS DECIMAL(20,0))) FROM (SELECT SHA2(IF(`_ver` % 2 = 1, CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`code`), ':', `code`)), CONCAT(`_ver`, ',', IF(`_deleted`, '1', '0'), ',', CONCAT(LENGTH(`code`), ':', `code`), ',', IFNULL(CONCAT(LENGTH(`name`), ':', `name`), 'N'))), 256) AS `_h` FROM `airports`) AS s;

SELECT `code`, '', `_ver`, `_deleted`, `code`, `name` FROM `airports` WHERE 1 = 1 AND `code` > '7' ORDER BY `code` LIMIT 5000;

