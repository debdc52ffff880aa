import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.zip.CRC32;
import org.apache.kafka.common.utils.Utils;

/**
 * Reads lines "hex of the bytes" TAB "hex of the text in UTF-16BE" and prints, for each,
 * crc32, murmur2, toPositive(murmur2), hashCode, hashCode & 0x7fffffff, separated by tabs.
 */
public class JvmHashes {
    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = in.readLine()) != null; ) {
            String[] cells = line.split("\t", -1);
            byte[] bytes = HexFormat.of().parseHex(cells[0]);
            int java = new String(HexFormat.of().parseHex(cells[1]), StandardCharsets.UTF_16BE).hashCode();
            var crc = new CRC32();
            crc.update(bytes);
            int murmur2 = Utils.murmur2(bytes);
            System.out.println(crc.getValue() + "\t" + murmur2 + "\t" + Utils.toPositive(murmur2)
                + "\t" + java + "\t" + (java & 0x7fffffff));
        }
    }
}
