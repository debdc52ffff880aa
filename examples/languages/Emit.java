import java.math.BigDecimal;
import java.math.RoundingMode;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Instant;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.zip.CRC32;

/**
 * Emitting in Java with plain JDBC. docs/emit-from-other-languages.md has the rules. Take {@link #emit} and {@link Image};
 * main shows their use:
 *
 * <pre>java -cp mysql-connector-j.jar Emit.java 'jdbc:mysql://127.0.0.1:3306/languages?user=app&amp;password=…' 4</pre>
 */
public final class Emit {
    static final int UPSERT = 1, DELETE = 2;
    static final SecureRandom RANDOM = new SecureRandom();
    static final DateTimeFormatter DATETIME = DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss.SSSSSS").withZone(ZoneOffset.UTC);
    static final DateTimeFormatter RFC3339 = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS'Z'").withZone(ZoneOffset.UTC);

    /**
     * Appends an event in the connection's open transaction, which has written, and so locked, the entity's row before.
     *
     * @param lanes   outbox.lanes of the file; it never changes
     * @param tenant  "" for a broadcast table
     * @param version null where the table's versions are automatic
     * @param month   202402; null for a table without months
     * @param spread  null for a table without a spread column
     * @param trace   W3C traceparent, or null
     */
    static void emit(Connection tx, int lanes, String table, String tenant, String entityId, int op, Long version,
            Integer month, String spread, String trace, Image image) throws SQLException {
        if (tx.getAutoCommit()) {
            throw new IllegalStateException("not in a transaction: setAutoCommit(false) first");
        }
        byte[] tenantBytes = utf8(tenant);
        CRC32 crc = new CRC32();
        crc.update(tenantBytes);
        byte[] eventId = new byte[16];
        RANDOM.nextBytes(eventId);
        String sql = String.format("INSERT INTO slotline_outbox_%02d (event_id, tbl, tenant, entity_id, op, version, month,"
                + " spread, codec, created_at, trace, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?)", crc.getValue() % lanes);
        try (PreparedStatement insert = tx.prepareStatement(sql)) {
            insert.setBytes(1, eventId);
            insert.setBytes(2, utf8(table));
            insert.setBytes(3, tenantBytes);
            insert.setBytes(4, utf8(entityId));
            insert.setInt(5, op);
            insert.setObject(6, version, Types.BIGINT);
            insert.setObject(7, month, Types.INTEGER);
            insert.setBytes(8, spread == null ? null : utf8(spread));
            insert.setString(9, DATETIME.format(Instant.now())); // as text: no driver's time zone touches it
            insert.setBytes(10, trace == null ? null : utf8(trace));
            insert.setBytes(11, utf8(image.toString()));
            insert.executeUpdate();
        }
    }

    /** The UTF-8 of a text; half a surrogate pair is refused rather than replaced. */
    static byte[] utf8(String s) {
        try {
            ByteBuffer b = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(s));
            byte[] bytes = new byte[b.remaining()];
            b.get(bytes);
            return bytes;
        } catch (CharacterCodingException e) {
            throw new IllegalArgumentException("half a surrogate pair in a text", e);
        }
    }

    /** A row image: the columns in the table's order. Each type has one form. */
    static final class Image {
        private final StringBuilder json = new StringBuilder("{");

        private Image add(String column, String value) {
            if (json.length() > 1) {
                json.append(',');
            }
            quote(column);
            json.append(':').append(value);
            return this;
        }

        Image none(String column) { return add(column, "null"); }
        Image bool(String column, boolean v) { return add(column, v ? "true" : "false"); }
        Image int64(String column, long v) { return add(column, Long.toString(v)); } // int32 too
        Image uint64(String column, long v) { return add(column, Long.toUnsignedString(v)); }
        /** A finite number. Any JSON form of it is taken; a decimal has no forms to choose from. */
        Image float64(String column, double v) {
            if (Double.isNaN(v) || Double.isInfinite(v)) {
                throw new IllegalArgumentException(column + ": " + v);
            }
            return add(column, Double.toString(v));
        }
        Image decimal(String column, BigDecimal v, int scale) {
            return add(column, '"' + v.setScale(scale, RoundingMode.UNNECESSARY).toPlainString() + '"');
        }
        Image string(String column, String v) { // text too
            add(column, "");
            quote(v);
            return this;
        }
        Image bytes(String column, byte[] v) { return add(column, '"' + Base64.getEncoder().encodeToString(v) + '"'); }
        Image date(String column, LocalDate v) { return add(column, '"' + v.toString() + '"'); }
        Image datetime(String column, Instant v) {
            return add(column, '"' + RFC3339.format(v.truncatedTo(ChronoUnit.MICROS)) + '"');
        }
        Image json(String column, String v) { return add(column, v); }

        private void quote(String s) {
            json.append('"');
            for (int i = 0; i < s.length(); i++) {
                char c = s.charAt(i);
                switch (c) {
                    case '"' -> json.append("\\\"");
                    case '\\' -> json.append("\\\\");
                    case '\b' -> json.append("\\b");
                    case '\f' -> json.append("\\f");
                    case '\n' -> json.append("\\n");
                    case '\r' -> json.append("\\r");
                    case '\t' -> json.append("\\t");
                    default -> {
                        if (c < 0x20) {
                            json.append(String.format("\\u%04x", (int) c));
                        } else {
                            json.append(c);
                        }
                    }
                }
            }
            json.append('"');
        }

        @Override
        public String toString() { return json + "}"; }
    }

    /** A flight departs and arrives, another one is deleted, an airport is kept everywhere: the rows of rows.jsonl. */
    public static void main(String[] args) throws SQLException {
        int lanes = Integer.parseInt(args[1]);
        try (Connection db = DriverManager.getConnection(args[0])) {
            db.setAutoCommit(false);
            write(db, "REPLACE INTO flight VALUES ('UA', 1545, '2024-02-29 10:15:00', 'departed', FALSE, NULL)"); // locks the entity first
            Instant departure = Instant.parse("2024-02-29T10:15:00Z");
            emit(db, lanes, "flights", "UA", "1545", UPSERT, null, 202402, "1545", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                    new Image().string("carrier", "UA").uint64("flight_id", 1545).datetime("sched_dep", departure)
                            .string("status", "departed").bool("cancelled", false).none("arr_delay"));
            db.commit();

            write(db, "UPDATE flight SET status = 'arrived', arr_delay = -3 WHERE carrier = 'UA' AND id = 1545");
            emit(db, lanes, "flights", "UA", "1545", UPSERT, null, 202402, "1545", null,
                    new Image().string("carrier", "UA").uint64("flight_id", 1545).datetime("sched_dep", departure)
                            .string("status", "arrived").bool("cancelled", false).int64("arr_delay", -3));
            long greatest = -1; // as unsigned
            write(db, "DELETE FROM flight WHERE carrier = 'DL' AND id = " + Long.toUnsignedString(greatest));
            emit(db, lanes, "flights", "DL", Long.toUnsignedString(greatest), DELETE, null, 202403, Long.toUnsignedString(greatest), null,
                    new Image().string("carrier", "DL").uint64("flight_id", greatest).datetime("sched_dep", Instant.parse("2024-03-01T00:00:00Z")));
            write(db, "REPLACE INTO airport VALUES ('JFK', 'John F. Kennedy')");
            emit(db, lanes, "airports", "", "JFK", UPSERT, null, null, null, null,
                    new Image().string("code", "JFK").string("name", "John F. Kennedy"));

            // A column of each type, and a version of the service's own.
            byte[] raw = new byte[80];
            for (int i = 0; i < raw.length; i++) {
                raw[i] = (byte) (i * 7);
            }
            String owner = "ann's \\ na\u00efve\n";
            emit(db, lanes, "samples", owner, "-7", UPSERT, 42L, null, null, null,
                    new Image().string("owner", owner).int64("n", -7).int64("v", 42).bool("yes", true).int64("small", Integer.MIN_VALUE)
                            .uint64("big", greatest).float64("ratio", 0.1).decimal("price", new BigDecimal("-12.5"), 2)
                            .string("note", "\"quoted\" \\ \t\r\n\b\f\001\037\177 \u00e9 \ud83d\ude00 \u2028").bytes("raw", raw)
                            .date("day", LocalDate.of(2024, 2, 29)).datetime("at", Instant.parse("1999-12-31T23:59:59.123456789Z"))
                            .json("doc", "{\"a\":[1,true,null],\"b\":\"x\"}").none("none"));
            db.commit();
        }
    }

    private static void write(Connection db, String statement) throws SQLException {
        try (PreparedStatement s = db.prepareStatement(statement)) {
            s.executeUpdate();
        }
    }
}
