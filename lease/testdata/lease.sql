-- columns
owner VARBINARY(128) NOT NULL DEFAULT '', owner_epoch BIGINT UNSIGNED NOT NULL DEFAULT 0, lease_until DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:01'
-- read
SELECT owner, owner_epoch, lease_until, UTC_TIMESTAMP(6) FROM `slotline_lane` WHERE lane = ?
-- take over
UPDATE `slotline_lane` SET owner = ?, owner_epoch = owner_epoch + 1, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE lane = ? AND owner_epoch = ? AND (owner = '' OR owner = ? OR lease_until <= UTC_TIMESTAMP(6))
-- renew
UPDATE `slotline_lane` SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE lane = ? AND owner = ? AND owner_epoch = ? AND lease_until > UTC_TIMESTAMP(6)
-- release
UPDATE `slotline_lane` SET owner = '', lease_until = '1970-01-01 00:00:01' WHERE lane = ? AND owner = ? AND owner_epoch = ?
-- guard of other statements
owner = ? AND owner_epoch = ?
