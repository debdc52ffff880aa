package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slotline/slotline/fault"
)

// DSN is the address of a database as the file writes it: "mysql://app:${OUTBOX_PASSWORD}@db0:3306/flights". Its
// variables are put in by Resolve alone, after the URL was taken apart, so that a password needs no escaping and a
// command needs only the secrets that it uses. It prints itself without its password, in every format.
type DSN struct {
	key   string // "shards.s1.dsn": what errors name
	where string // "slotline.yaml:7", or the key again for one that no file holds

	scheme   string
	user     string // templates: literal text already unescaped, variables still in place
	password string
	hosts    []string // host:port each
	database string
	params   map[string]string
	hasPass  bool
}

// Address is a DSN with its variables put in. It holds a secret: it prints without it, and must not be stored.
type Address struct {
	Scheme   string
	User     string
	Password string
	Hosts    []string // host:port each; exactly one for mysql
	Database string
	Params   map[string]string
}

const (
	mysqlScheme      = "mysql"
	clickhouseScheme = "clickhouse"
	dorisScheme      = "doris" // made of sinks.doris, not written as a URL
	s3Scheme         = "s3"    // made of archive.s3
	kafkaScheme      = "kafka" // made of kafka.brokers and kafka.sasl
)

var defaultPorts = map[string]string{mysqlScheme: "3306", clickhouseScheme: "9000"}

const clickhouseTLSPort = "9440" // of native protocol over TLS

// ParseDSN reads a mysql:// or clickhouse:// URL that stands in no file; key is what errors call it.
func ParseDSN(key, text string) (DSN, error) {
	d, err := parseDSN(text)
	if err != nil {
		return DSN{}, &fault.Error{Code: codeDSN, Class: fault.Usage, What: key + ": " + err.what, Write: err.write}
	}
	d.key, d.where = key, key
	return d, nil
}

// dsnError is what is wrong with a URL; it never quotes a part that may hold a password.
type dsnError struct{ what, write string }

// parseDSN takes the URL apart. Variables are opaque to it: whatever "${…}" holds is never taken for a separator.
func parseDSN(text string) (DSN, *dsnError) {
	var d DSN
	masked, vars, err := maskVariables(text)
	if err != nil {
		return d, &dsnError{err.Error(), "${NAME} or ${file:/path}"}
	}
	unmask := func(s string) string {
		for i, v := range vars {
			s = strings.Replace(s, marker(i), v, 1)
		}
		return s
	}
	// unescape undoes %40 and the like in literal text only: variables are put back afterwards.
	unescape := func(part, s string) (string, *dsnError) {
		plain, err := url.PathUnescape(s)
		if err != nil {
			return "", &dsnError{"the " + part + " holds a % that is not followed by two hex digits", "%25 for a percent sign, or a ${VARIABLE}, which needs no escaping"}
		}
		return unmask(plain), nil
	}
	for _, c := range masked {
		if c < ' ' && c != 0 || c == 0x7f {
			return d, &dsnError{"a URL holds no line break or other control character", ""}
		}
	}

	scheme, rest, ok := strings.Cut(masked, "://")
	if _, known := defaultPorts[scheme]; !ok || !known {
		return d, &dsnError{"a database is written as a URL that begins with mysql:// or clickhouse://",
			`"mysql://user:${PASSWORD}@host:3306/database"`}
	}
	d.scheme = scheme
	example := fmt.Sprintf(`"%s://user:${PASSWORD}@host:%s/database"`, scheme, defaultPorts[scheme])

	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path+query, "@") || strings.Contains(rest, "#") {
		return d, &dsnError{"a password written out must have its / ? # @ escaped (%2F %3F %23 %40)", example + ", which needs no escaping"}
	}
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		user, password, hasPass := strings.Cut(authority[:at], ":")
		var derr *dsnError
		if d.user, derr = unescape("user", user); derr != nil {
			return d, derr
		}
		if d.password, derr = unescape("password", password); derr != nil {
			return d, derr
		}
		d.hasPass = hasPass
	}
	if d.user == "" {
		return d, &dsnError{"the URL names no user", example}
	}

	port := defaultPorts[scheme]
	if scheme == clickhouseScheme && slices.ContainsFunc(strings.Split(query, "&"), func(p string) bool { return p == "secure=true" || p == "secure=skip-verify" }) {
		port = clickhouseTLSPort
	}
	for h := range strings.SplitSeq(hosts, ",") {
		hp, err := hostPort(h, port)
		if err != nil {
			return d, &dsnError{unmask(err.Error()), example}
		}
		d.hosts = append(d.hosts, unmask(hp))
	}
	if scheme == mysqlScheme && len(d.hosts) > 1 {
		return d, &dsnError{"a mysql:// URL names one host: a shard has one primary", "the primary's host, or the proxy's"}
	}
	var derr *dsnError
	if d.database, derr = unescape("database", path); derr != nil {
		return d, derr
	}
	if d.database == "" {
		return d, &dsnError{"the URL names no database", example}
	}
	if why := badDatabase(path); why != "" {
		return d, &dsnError{why, example}
	}

	if hasQuery {
		d.params = map[string]string{}
		for pair := range strings.SplitSeq(query, "&") {
			k, v, _ := strings.Cut(pair, "=")
			if _, twice := d.params[k]; twice {
				return d, &dsnError{"parameter " + strconv.Quote(unmask(k)) + " stands twice in the URL", ""}
			}
			if d.params[k], derr = unescape("parameter", v); derr != nil {
				return d, derr
			}
			if why, write := badParam(scheme, unmask(k), d.params[k]); why != "" {
				return d, &dsnError{why, write}
			}
		}
	}
	return d, nil
}

// marker stands for variable i while a URL is taken apart. NUL cannot stand in a YAML file or an environment.
func marker(i int) string { return "\x00" + strconv.Itoa(i) + "\x00" }

// maskVariables replaces each ${…} by a marker and returns the variables as written.
func maskVariables(text string) (masked string, vars []string, err error) {
	if strings.Contains(text, "\x00") {
		return "", nil, errors.New("a URL holds no NUL")
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "${")
		b.WriteString(before)
		if !found {
			return b.String(), vars, nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed {
			return "", nil, errors.New("${ has no closing }")
		}
		if !validVariable(name) {
			return "", nil, errors.New("between ${ and } stands the name of an environment variable (letters, digits, _), or file: and a path")
		}
		b.WriteString(marker(len(vars)))
		vars = append(vars, "${"+name+"}")
		text = rest
	}
}

func validVariable(name string) bool {
	if path, ok := strings.CutPrefix(name, "file:"); ok {
		return path != ""
	}
	for i, c := range []byte(name) {
		if c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || i > 0 && '0' <= c && c <= '9' {
			continue
		}
		return false
	}
	return name != ""
}

// hostPort adds the default port. The text may hold markers.
func hostPort(text, port string) (string, error) {
	if text == "" {
		return "", errors.New("the URL names no host")
	}
	host, p := text, port
	if strings.HasPrefix(text, "[") { // IPv6
		h, rest, closed := strings.Cut(text[1:], "]")
		if !closed || net.ParseIP(h) == nil || rest != "" && rest[0] != ':' {
			return "", errors.New("an IPv6 host is written in brackets: [::1]:" + port)
		}
		host = h
		if rest != "" {
			p = rest[1:]
		}
	} else if i := strings.LastIndexByte(text, ':'); i >= 0 {
		host, p = text[:i], text[i+1:]
		if strings.Contains(host, ":") {
			return "", errors.New("a host holds no colon; an IPv6 host is written in brackets: [::1]:" + port)
		}
	}
	if host == "" {
		return "", errors.New("the URL names no host")
	}
	if strings.ContainsAny(host, " \t()\\'\"`<>") {
		return "", errors.New("host " + strconv.Quote(host) + " is not a host name or address")
	}
	if n, err := strconv.ParseUint(p, 10, 16); (err != nil || n == 0) && !strings.HasPrefix(p, "\x00") {
		return "", errors.New("port " + strconv.Quote(p) + " is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, p), nil
}

// badDatabase says why a database cannot have this name; "" if it can. Plain names only: they are part of SQL, of
// grants and of what people type.
func badDatabase(name string) string {
	if len(name) > 64 {
		return "the database name is longer than 64 bytes"
	}
	for _, c := range []byte(name) {
		if c == 0 || c == '_' || c == '-' || c == '$' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			continue
		}
		return "after the host stands one database name of letters, digits, _ - and $"
	}
	return ""
}

var (
	tlsChoices    = []string{"true", "skip-verify", "preferred", "false"}
	secureChoices = []string{"true", "skip-verify", "false"}
	// sinkSettings are ClickHouse settings that the sink sets itself.
	sinkSettings = []string{"async_insert", "insert_deduplicate", "insert_deduplication_token"}
	settingName  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// badParam says why a URL parameter is not taken, and what to write instead.
func badParam(scheme, name, value string) (why, write string) {
	switch {
	case scheme == mysqlScheme && name == "tls":
		if slices.Contains(tlsChoices, value) {
			return "", ""
		}
		return "tls is " + orList(tlsChoices), "tls=true"
	case scheme == mysqlScheme:
		return "parameter " + strconv.Quote(name) + " is not one slotline takes from a mysql:// URL: it sets sql_mode, time zone, isolation, character set and time-outs itself", "the URL without it (tls=true is the one that may be there)"
	case name == "secure":
		if slices.Contains(secureChoices, value) {
			return "", ""
		}
		return "secure is " + orList(secureChoices), "secure=true"
	case slices.Contains(sinkSettings, name):
		return "setting " + name + " is the sink's: it decides whether a block counts once", "the URL without it"
	case !settingName.MatchString(name) || value == "":
		return "parameter " + strconv.Quote(name) + " is not secure, nor a ClickHouse setting with its value", "max_threads=2"
	}
	return "", "" // the server refuses a setting that it does not know
}

// Resolve puts the variables in. The error names the key and the variable that is not set.
func (d DSN) Resolve() (Address, error) {
	a := Address{Scheme: d.scheme, Params: map[string]string{}}
	var err error
	fill := func(template string) string {
		s, e := d.expand(template)
		if err == nil {
			err = e
		}
		return s
	}
	a.User, a.Password, a.Database = fill(d.user), fill(d.password), fill(d.database)
	for _, h := range d.hosts {
		a.Hosts = append(a.Hosts, fill(h))
	}
	for k, v := range d.params {
		a.Params[k] = fill(v)
	}
	if err != nil {
		return Address{}, err
	}
	return a, nil
}

// expand replaces each ${…} once: what a variable holds is never read as a variable again.
func (d DSN) expand(template string) (string, error) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(template, "${")
		b.WriteString(before)
		name, rest, closed := strings.Cut(after, "}")
		if !found || !closed {
			return b.String(), nil
		}
		template = rest
		var value string
		if path, isFile := strings.CutPrefix(name, "file:"); isFile {
			data, err := os.ReadFile(path)
			if err != nil {
				return "", &fault.Error{Code: codeVariable, Class: fault.Usage, Err: err,
					What: fmt.Sprintf("%s: %s names file %s, which cannot be read: %s", d.where, d.key, path, reason(err)),
					Do:   "write the secret into that file and let the user that runs this process read it"}
			}
			value = strings.TrimRight(string(data), "\r\n") // editors and echo add one
		} else {
			var set bool
			if value, set = os.LookupEnv(name); !set {
				do := "set " + name + " in the environment of this process"
				if !strings.HasPrefix(d.key, "kafka.sasl.") && !strings.HasPrefix(d.key, "archive.") { // which refuse an empty one
					do += "; set it to nothing if there is no password"
				}
				return "", &fault.Error{Code: codeVariable, Class: fault.Usage,
					What: fmt.Sprintf("%s: %s needs the environment variable %s, which is not set", d.where, d.key, name),
					Do:   do}
			}
		}
		b.WriteString(value)
	}
}

// reason is an operating system's error without the path, which the message holds already.
func reason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// WithoutPassword is the same address for who needs no session: its password is empty, whatever variable the file names.
func (d DSN) WithoutPassword() DSN {
	d.password, d.hasPass = "", false
	return d
}

// IsZero says whether there is no address at all.
func (d DSN) IsZero() bool { return d.scheme == "" }

// Database is the name of the database, with its variables as written.
func (d DSN) Database() string { return d.database }

// Key is the key that holds it: "shards.s1.dsn".
func (d DSN) Key() string { return d.key }

// Place is how a person names it: "db1/flights_s1", the default port left out. It holds neither user nor password.
func (d DSN) Place() string {
	hosts := make([]string, len(d.hosts))
	for i, h := range d.hosts {
		hosts[i] = strings.TrimSuffix(h, ":"+defaultPorts[d.scheme])
	}
	return strings.Join(hosts, ",") + "/" + d.database
}

// sameDatabase says whether two addresses, as written, are of one database.
func (d DSN) sameDatabase(o DSN) bool {
	return d.scheme == o.scheme && d.database == o.database &&
		slices.EqualFunc(d.hosts, o.hosts, strings.EqualFold)
}

// Redacted is the URL with its password masked; a password that is a variable is shown by the variable's name.
func (d DSN) Redacted() string {
	if d.IsZero() {
		return ""
	}
	return redact(d.scheme, d.user, maskPassword(d.password), d.hasPass, d.hosts, d.database, d.params)
}

func redact(scheme, user, password string, hasPass bool, hosts []string, database string, params map[string]string) string {
	var b strings.Builder
	b.WriteString(scheme + "://" + user)
	if hasPass {
		b.WriteString(":" + password)
	}
	b.WriteString("@" + strings.Join(hosts, ",") + "/" + database)
	sep := "?"
	for _, k := range slices.Sorted(maps.Keys(params)) {
		b.WriteString(sep + k + "=" + params[k])
		sep = "&"
	}
	return b.String()
}

// maskPassword shows a password only if it is nothing but a variable.
func maskPassword(template string) string {
	if name, ok := strings.CutPrefix(template, "${"); ok && strings.HasSuffix(name, "}") && strings.Count(template, "}") == 1 {
		return template
	}
	if template == "" {
		return ""
	}
	return "***"
}

// The methods below keep the secret out of logs, JSON and debug output alike, whatever the verb.

func (d DSN) String() string                { return d.Redacted() }
func (d DSN) Format(s fmt.State, verb rune) { format(s, verb, "config.DSN", d.Redacted()) }
func (d DSN) MarshalText() ([]byte, error)  { return []byte(d.Redacted()), nil }

// String is the URL with its password masked.
func (a Address) String() string {
	return redact(a.Scheme, a.User, "***", a.Password != "", a.Hosts, a.Database, a.Params)
}
func (a Address) Format(s fmt.State, verb rune) { format(s, verb, "config.Address", a.String()) }
func (a Address) MarshalText() ([]byte, error)  { return []byte(a.String()), nil }

func format(s fmt.State, verb rune, name, text string) {
	if verb == 'v' && s.Flag('#') {
		text = name + "(" + strconv.Quote(text) + ")"
	}
	io.WriteString(s, text)
}
