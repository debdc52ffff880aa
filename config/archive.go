package config

import (
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixName = regexp.MustCompile(`^[a-zA-Z0-9._-]+(/[a-zA-Z0-9._-]+)*$`)
	regionName = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)
)

// archive is nil where the file has none.
func (l loader) archive(e *entry, line string) *Archive {
	if !e.present() {
		return nil
	}
	a := &Archive{OlderThan: l.duration(e.get("older_than")), FileBytes: l.number(e.get("file_bytes"))}
	dir, s3 := e.get("dir"), e.get("s3")
	switch {
	case dir.present() && s3.present():
		l.add(codeConflict, "one of them", []*yaml.Node{dir.key, s3.key}, "archive has dir and s3: the log is archived in one place")
	case s3.present():
		a.S3 = l.s3(s3, line)
	case !dir.present():
		l.add(codeMissing, dir.example, []*yaml.Node{e.key}, "archive names no place: dir or s3")
	case !path.IsAbs(dir.node.Value) || path.Clean(dir.node.Value) == "/" || strings.Contains(dir.node.Value, "${"):
		l.wrong(codeValue, dir, "is no absolute path of a directory", "/srv/archive/"+line)
	default:
		a.Dir = path.Clean(dir.node.Value)
	}
	return a
}

func (l loader) s3(e *entry, line string) *S3 {
	s := &S3{DSN: DSN{scheme: s3Scheme, key: e.path, where: l.at(e.key)}, Prefix: line}
	if endpoint := e.get("endpoint"); endpoint.present() {
		scheme, host, found := strings.Cut(endpoint.node.Value, "://")
		port := "443"
		if scheme == "http" {
			port = "80"
		}
		hp, err := hostPort(strings.TrimSuffix(host, "/"), port)
		switch {
		case strings.ContainsAny(endpoint.node.Value, "@?#") || strings.Contains(endpoint.node.Value, "${"):
			l.add(codeValue, endpoint.example, []*yaml.Node{endpoint.key}, "%s holds the address alone: access_key and secret_key are keys of their own", endpoint.path)
		case !found || scheme != "http" && scheme != "https" || err != nil || strings.Contains(hp, "/"):
			l.wrong(codeValue, endpoint, "is not https://host", `"https://s3.eu-central-1.amazonaws.com"`)
		default:
			s.HTTPS, s.DSN.hosts = scheme == "https", []string{hp}
		}
	}
	named := func(key string, pattern *regexp.Regexp, why string, to *string) {
		at := e.get(key)
		if !at.present() {
			return
		}
		if !pattern.MatchString(at.node.Value) {
			l.wrong(codeName, at, why, "")
			return
		}
		*to = at.node.Value
	}
	s.Region = e.get("region").def
	named("bucket", bucketName, "cannot name a bucket: 3 to 63 of a-z 0-9 . -", &s.DSN.database)
	named("prefix", prefixName, "cannot begin the names of objects: a-z A-Z 0-9 . _ - and single slashes between them", &s.Prefix)
	named("region", regionName, "cannot name a region: letters, digits and -", &s.Region)
	access, secret := e.get("access_key"), e.get("secret_key")
	if access.present() != secret.present() {
		at := access
		if secret.present() {
			at = secret
		}
		l.add(codeMissing, access.example+", "+secret.example, []*yaml.Node{at.key}, "%s: access_key and secret_key come together, or neither does", e.path)
		return s
	}
	if access.present() {
		if s.DSN.user = access.node.Value; s.DSN.user == "" || strings.Contains(s.DSN.user, "${") {
			l.wrong(codeName, access, "cannot name a user: no variable", "")
		}
		s.DSN.password, s.DSN.hasPass = secret.node.Value, true
		s.DSN.key, s.DSN.where = secret.path, l.at(secret.key)
		if _, _, err := maskVariables(s.DSN.password); err != nil {
			l.add(codeValue, secret.example, []*yaml.Node{secret.key}, "%s: %s", secret.path, err.Error())
		}
	}
	return s
}
