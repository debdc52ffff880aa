-- apply
CREATE TABLE IF NOT EXISTS `slotline_intent` (
  `sink` VARBINARY(64) NOT NULL,
  `grp` INT NOT NULL,
  owner VARBINARY(128) NOT NULL DEFAULT '', owner_epoch BIGINT UNSIGNED NOT NULL DEFAULT 0, lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:01',
  `run_id` BINARY(16) NOT NULL,
  `seq` BIGINT NOT NULL,
  `codec` INT NOT NULL,
  `ranges` LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  `excluded` LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
  `confirmed` TINYINT(1) NOT NULL,
  `updated_at` DATETIME(6) NOT NULL,
  PRIMARY KEY (`sink`,`grp`)
) ENGINE=InnoDB COMMENT='slotline intent format 1';
INSERT INTO `slotline_intent` (`sink`,`grp`,`run_id`,`seq`,`codec`,`ranges`,`excluded`,`confirmed`,`updated_at`) VALUES (?,?,?,0,?,'[]','[]',1,UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE `seq`=`slotline_intent`.`seq`;
-- take-over, after the lease (package lease)
SELECT `owner`,`owner_epoch`,`run_id`,`seq`,`codec`,`ranges`,`excluded`,`confirmed` FROM `slotline_intent` WHERE `sink`=? AND `grp`=?;
-- store
UPDATE `slotline_intent` SET `run_id`=?,`seq`=?,`codec`=?,`ranges`=?,`excluded`=?,`confirmed`=0,`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND owner = ? AND owner_epoch = ?;
-- confirm and advance: one transaction
UPDATE `slotline_intent` SET `confirmed`=1,`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND owner = ? AND owner_epoch = ? AND `seq`=? AND `run_id`=?;
UPDATE `slotline_progress` SET `next_off`=200,`applied_off`=GREATEST(`applied_off`,200),`leader_epoch`=5,`topic_id`=x'00000000000000000000000000000000',`halted_at`=NULL,`halt_code`=NULL,`halt_text`=NULL,`updated_at`=UTC_TIMESTAMP(6) WHERE `sink`='clickhouse' AND `topic`='flights.events' AND `part`=3 AND `owner_epoch`=7 AND `owner`='a' AND `next_off`=100;
-- advance over a batch without rows: in place of the confirmation
UPDATE `slotline_intent` SET `updated_at`=UTC_TIMESTAMP(6) WHERE `sink`=? AND `grp`=? AND owner = ? AND owner_epoch = ?;
