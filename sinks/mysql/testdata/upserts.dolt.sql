INSERT INTO `everything_202611` (`owner`,`id`,`at`,`a_bool`,`a_int32`,`a_int64`,`a_uint64`,`a_float64`,`a_decimal`,`a_string`,`a_text`,`a_bytes`,`a_date`,`a_datetime`,`a_json`,`n_int32`,`n_string`,`n_json`,`_ver`)
  VALUES ('4',2,'1970-01-01 00:00:00.000001',1,1,1,2,3e+00,4,'4','4',x'34','1970-01-02','1970-01-01 00:00:00.000001','4',1,'4','4',14),
  ('4',2,'1970-01-01 00:00:00.000001',0,0,0,0,0e0,0,'','',x'','1970-01-01','1970-01-01 00:00:00','null',NULL,NULL,NULL,15) AS `_n`
  ON DUPLICATE KEY UPDATE `at`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`at`,`everything_202611`.`at`),
    `a_bool`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_bool`,`everything_202611`.`a_bool`),
    `a_int32`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_int32`,`everything_202611`.`a_int32`),
    `a_int64`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_int64`,`everything_202611`.`a_int64`),
    `a_uint64`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_uint64`,`everything_202611`.`a_uint64`),
    `a_float64`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_float64`,`everything_202611`.`a_float64`),
    `a_decimal`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_decimal`,`everything_202611`.`a_decimal`),
    `a_string`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_string`,`everything_202611`.`a_string`),
    `a_text`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_text`,`everything_202611`.`a_text`),
    `a_bytes`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_bytes`,`everything_202611`.`a_bytes`),
    `a_date`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_date`,`everything_202611`.`a_date`),
    `a_datetime`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_datetime`,`everything_202611`.`a_datetime`),
    `a_json`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`a_json`,`everything_202611`.`a_json`),
    `n_int32`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`n_int32`,`everything_202611`.`n_int32`),
    `n_string`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`n_string`,`everything_202611`.`n_string`),
    `n_json`=IF(`_n`.`_ver`>`everything_202611`.`_ver`,`_n`.`n_json`,`everything_202611`.`n_json`),
    `_deleted`=GREATEST(`_n`.`_ver`,`everything_202611`.`_ver`) & 1,`_ver`=GREATEST(`_n`.`_ver`,`everything_202611`.`_ver`);

INSERT INTO `customers` (`owner`,`id`,`name`,`_ver`)
  VALUES (1,'4','4',14),
  (1,'4','',15) AS `_n`
  ON DUPLICATE KEY UPDATE `name`=IF(`_n`.`_ver`>`customers`.`_ver`,`_n`.`name`,`customers`.`name`),
    `_deleted`=GREATEST(`_n`.`_ver`,`customers`.`_ver`) & 1,`_ver`=GREATEST(`_n`.`_ver`,`customers`.`_ver`);

INSERT INTO `places` (`code`,`name`,`_ver`)
  VALUES ('4','4',14),
  ('4','',15) AS `_n`
  ON DUPLICATE KEY UPDATE `name`=IF(`_n`.`_ver`>`places`.`_ver`,`_n`.`name`,`places`.`name`),
    `_deleted`=GREATEST(`_n`.`_ver`,`places`.`_ver`) & 1,`_ver`=GREATEST(`_n`.`_ver`,`places`.`_ver`);

