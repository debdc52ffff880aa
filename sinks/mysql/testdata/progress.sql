CREATE TABLE IF NOT EXISTS `slotline_progress` (
  `sink` VARBINARY(64) NOT NULL,
  `topic` VARBINARY(249) NOT NULL,
  `part` INT NOT NULL,
  `next_off` BIGINT NOT NULL,
  `applied_off` BIGINT NOT NULL,
  `topic_id` BINARY(16) NOT NULL,
  `leader_epoch` INT NOT NULL,
  `owner` VARBINARY(128) NOT NULL,
  `owner_epoch` BIGINT NOT NULL,
  `halted_at` DATETIME(6) NULL,
  `halt_code` VARBINARY(16) NULL,
  `halt_text` TEXT CHARACTER SET utf8mb4 NULL,
  `updated_at` DATETIME(6) NOT NULL,
  PRIMARY KEY (`sink`,`topic`,`part`)
) ENGINE=InnoDB COMMENT='slotline progress format 1';

CREATE TABLE IF NOT EXISTS `slotline_gap` (
  `sink` VARBINARY(64) NOT NULL,
  `topic` VARBINARY(249) NOT NULL,
  `part` INT NOT NULL,
  `from_off` BIGINT NOT NULL,
  `to_off` BIGINT NOT NULL,
  `owner_epoch` BIGINT NOT NULL,
  `accepted_at` DATETIME(6) NOT NULL,
  `accepted_by` VARBINARY(128) NOT NULL,
  `reason` TEXT CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (`sink`,`topic`,`part`,`owner_epoch`)
) ENGINE=InnoDB COMMENT='slotline gap format 1';

START TRANSACTION;
UPDATE `slotline_progress` SET `next_off`=200,`applied_off`=GREATEST(`applied_off`,200),`leader_epoch`=3,`topic_id`=x'AB000000000000000000000000000001',`halted_at`=NULL,`halt_code`=NULL,`halt_text`=NULL,`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`='mysql' AND `topic`='flights.events' AND `part`=11 AND `owner_epoch`=7 AND `owner`='host/1/ab' AND `next_off`=100;
-- rows
COMMIT;
