-- Emitting in plain SQL: paste it into the mysql client, in the database that holds the outbox.
-- docs/emit-from-other-languages.md has the rules. The connection's character set must be utf8mb4.
SET NAMES utf8mb4;

-- Once: appends an event to the lane of its tenant. The number of lanes is outbox.lanes of the file, here 4; it never
-- changes. A trigger may call it.
DROP PROCEDURE IF EXISTS slotline_emit;
DELIMITER //
CREATE PROCEDURE slotline_emit(
  p_tbl       VARCHAR(64)  CHARACTER SET utf8mb4,
  p_tenant    VARCHAR(64)  CHARACTER SET utf8mb4,  -- '' for a broadcast table
  p_entity_id VARCHAR(255) CHARACTER SET utf8mb4,
  p_op        TINYINT,                             -- 1 upsert, 2 delete
  p_version   BIGINT,                              -- NULL where the table's versions are automatic
  p_month     INT,                                 -- 202402; NULL for a table without months
  p_spread    VARCHAR(255) CHARACTER SET utf8mb4,  -- NULL for a table without a spread column
  p_trace     VARCHAR(64)  CHARACTER SET utf8mb4,  -- W3C traceparent, or NULL
  p_payload   LONGTEXT     CHARACTER SET utf8mb4)
MODIFIES SQL DATA
BEGIN
  CASE CRC32(p_tenant) MOD 4
  WHEN 0 THEN
    INSERT INTO slotline_outbox_00 (event_id, tbl, tenant, entity_id, op, version, month, spread, codec, created_at, trace, payload)
    VALUES (RANDOM_BYTES(16), p_tbl, p_tenant, p_entity_id, p_op, p_version, p_month, p_spread, 1, UTC_TIMESTAMP(6), p_trace, p_payload);
  WHEN 1 THEN
    INSERT INTO slotline_outbox_01 (event_id, tbl, tenant, entity_id, op, version, month, spread, codec, created_at, trace, payload)
    VALUES (RANDOM_BYTES(16), p_tbl, p_tenant, p_entity_id, p_op, p_version, p_month, p_spread, 1, UTC_TIMESTAMP(6), p_trace, p_payload);
  WHEN 2 THEN
    INSERT INTO slotline_outbox_02 (event_id, tbl, tenant, entity_id, op, version, month, spread, codec, created_at, trace, payload)
    VALUES (RANDOM_BYTES(16), p_tbl, p_tenant, p_entity_id, p_op, p_version, p_month, p_spread, 1, UTC_TIMESTAMP(6), p_trace, p_payload);
  WHEN 3 THEN
    INSERT INTO slotline_outbox_03 (event_id, tbl, tenant, entity_id, op, version, month, spread, codec, created_at, trace, payload)
    VALUES (RANDOM_BYTES(16), p_tbl, p_tenant, p_entity_id, p_op, p_version, p_month, p_spread, 1, UTC_TIMESTAMP(6), p_trace, p_payload);
  END CASE;
END//
DELIMITER ;

-- The service's own tables.
CREATE TABLE IF NOT EXISTS flight (carrier VARCHAR(2), id BIGINT UNSIGNED, sched_dep DATETIME(6) NOT NULL,
  status VARCHAR(10) NOT NULL, cancelled BOOL NOT NULL, arr_delay INT NULL, PRIMARY KEY (carrier, id));
CREATE TABLE IF NOT EXISTS airport (code VARCHAR(3) PRIMARY KEY, name VARCHAR(80) NOT NULL) CHARACTER SET utf8mb4;
CREATE TABLE IF NOT EXISTS sample (owner VARCHAR(20), n BIGINT, v BIGINT NOT NULL, yes BOOL NOT NULL, small INT NOT NULL,
  big BIGINT UNSIGNED NOT NULL, ratio DOUBLE NOT NULL, price DECIMAL(12,2) NOT NULL, note TEXT NOT NULL, raw VARBINARY(80) NOT NULL,
  day DATE NOT NULL, at DATETIME(6) NOT NULL, doc TEXT NOT NULL, none VARCHAR(5) NULL, PRIMARY KEY (owner, n)) CHARACTER SET utf8mb4;

-- A flight departs. An INSERT alone does, where the tenant is fixed: SELECT CRC32('UA') MOD 4 is 0.
START TRANSACTION;
INSERT INTO flight VALUES ('UA', 1545, '2024-02-29 10:15:00', 'departed', FALSE, NULL); -- locks the entity first
INSERT INTO slotline_outbox_00 (event_id, tbl, tenant, entity_id, op, month, spread, codec, created_at, trace, payload)
VALUES (RANDOM_BYTES(16), 'flights', 'UA', '1545', 1, 202402, '1545', 1, UTC_TIMESTAMP(6),
  '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  '{"carrier":"UA","flight_id":1545,"sched_dep":"2024-02-29T10:15:00.000000Z","status":"departed","cancelled":false,"arr_delay":null}');
COMMIT;

-- It arrives: the image is made of the row, one expression per type.
START TRANSACTION;
UPDATE flight SET status = 'arrived', arr_delay = -3 WHERE carrier = 'UA' AND id = 1545;
CALL slotline_emit('flights', 'UA', '1545', 1, NULL, 202402, '1545', NULL, (
  SELECT CONCAT('{"carrier":', JSON_QUOTE(carrier), ',"flight_id":', id,
    ',"sched_dep":', JSON_QUOTE(DATE_FORMAT(sched_dep, '%Y-%m-%dT%H:%i:%s.%fZ')),
    ',"status":', JSON_QUOTE(status), ',"cancelled":', IF(cancelled, 'true', 'false'),
    ',"arr_delay":', COALESCE(arr_delay, 'null'), '}')
  FROM flight WHERE carrier = 'UA' AND id = 1545));

-- A delete tells tenant, id, month and spread; a broadcast table has no tenant.
DELETE FROM flight WHERE carrier = 'DL' AND id = 18446744073709551615;
CALL slotline_emit('flights', 'DL', '18446744073709551615', 2, NULL, 202403, '18446744073709551615', NULL,
  '{"carrier":"DL","flight_id":18446744073709551615,"sched_dep":"2024-03-01T00:00:00.000000Z"}');
INSERT INTO airport VALUES ('JFK', 'John F. Kennedy') ON DUPLICATE KEY UPDATE name = 'John F. Kennedy';
CALL slotline_emit('airports', '', 'JFK', 1, NULL, NULL, NULL, NULL,
  (SELECT CONCAT('{"code":', JSON_QUOTE(code), ',"name":', JSON_QUOTE(name), '}') FROM airport WHERE code = 'JFK'));

-- A row with a column of each type, whose version is the service's own.
REPLACE INTO sample VALUES ('ann''s \\ naïve\n', -7, 42, TRUE, -2147483648, 18446744073709551615, 0.1, -12.5,
  CONCAT('"quoted" \\ \t\r\n\b', CHAR(12, 1, 31, 127 USING utf8mb4), ' é 😀 ', CONVERT(x'e280a8' USING utf8mb4)),
  x'00070e151c232a31383f464d545b626970777e858c939aa1a8afb6bdc4cbd2d9e0e7eef5fc030a11181f262d343b424950575e656c737a81888f969da4abb2b9c0c7ced5dce3eaf1f8ff060d141b2229',
  '2024-02-29', '1999-12-31 23:59:59.123456', '{"a":[1,true,null],"b":"x"}', NULL);
CALL slotline_emit('samples', 'ann''s \\ naïve\n', '-7', 1, 42, NULL, NULL, NULL, (
  SELECT CONCAT('{"owner":', JSON_QUOTE(owner), ',"n":', n, ',"v":', v, ',"yes":', IF(yes, 'true', 'false'), ',"small":', small,
    ',"big":', big, ',"ratio":', ratio, ',"price":', JSON_QUOTE(CAST(price AS CHAR)), ',"note":', JSON_QUOTE(note),
    ',"raw":', JSON_QUOTE(REPLACE(TO_BASE64(raw), '\n', '')), ',"day":', JSON_QUOTE(DATE_FORMAT(day, '%Y-%m-%d')),
    ',"at":', JSON_QUOTE(DATE_FORMAT(at, '%Y-%m-%dT%H:%i:%s.%fZ')), ',"doc":', doc, ',"none":', COALESCE(JSON_QUOTE(none), 'null'), '}')
  FROM sample WHERE owner = 'ann''s \\ naïve\n' AND n = -7));
COMMIT;
