CREATE TABLE IF NOT EXISTS `everything_202611` (
  `owner` VARCHAR(64) NOT NULL,
  `id` BIGINT UNSIGNED NOT NULL,
  `at` DATETIME(6) NOT NULL,
  `a_bool` TINYINT(1) NOT NULL,
  `a_int32` INT NOT NULL,
  `a_int64` BIGINT NOT NULL,
  `a_uint64` BIGINT UNSIGNED NOT NULL,
  `a_float64` DOUBLE NOT NULL,
  `a_decimal` DECIMAL(12,2) NOT NULL,
  `a_string` VARCHAR(10) NOT NULL,
  `a_text` LONGTEXT NOT NULL,
  `a_bytes` VARBINARY(16) NOT NULL,
  `a_date` DATE NOT NULL,
  `a_datetime` DATETIME(6) NOT NULL,
  `a_json` JSON NOT NULL,
  `n_int32` INT NULL,
  `n_string` VARCHAR(10) NULL,
  `n_json` JSON NULL,
  `_ver` BIGINT NOT NULL,
  `_deleted` TINYINT(1) NOT NULL DEFAULT (`_ver` & 1),
  PRIMARY KEY (`owner`,`id`),
  KEY `ix_owner_a_string` (`owner`,`a_string`),
  KEY `ix_owner_a_datetime_a_int64_a_int32_a_decimal_a_float64_a_bool` (`owner`,`a_datetime`,`a_int64`,`a_int32`,`a_decimal`,`a_float64`,`a_bool`)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin COMMENT='slotline table format 1';

CREATE TABLE IF NOT EXISTS `customers` (
  `owner` BIGINT NOT NULL,
  `id` VARCHAR(40) NOT NULL,
  `name` VARCHAR(100) NOT NULL,
  `_ver` BIGINT NOT NULL,
  `_deleted` TINYINT(1) NOT NULL DEFAULT (`_ver` & 1),
  PRIMARY KEY (`owner`,`id`)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin COMMENT='slotline table format 1';

CREATE TABLE IF NOT EXISTS `places` (
  `code` VARCHAR(8) NOT NULL,
  `name` VARCHAR(80) NOT NULL,
  `_ver` BIGINT NOT NULL,
  `_deleted` TINYINT(1) NOT NULL DEFAULT (`_ver` & 1),
  PRIMARY KEY (`code`)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin COMMENT='slotline table format 1';

