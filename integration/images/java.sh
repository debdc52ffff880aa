#!/usr/bin/env bash
# Makes sure of a JDK, and prints the path of MySQL's JDBC driver, which is kept in the cache: for the tests of programs in
# Java. As root on Debian it installs what is missing; SETUP=0 forbids that.
image=java
. "$(dirname "$0")/lib.sh"

version=9.5.0
jar=$cache_dir/mysql-connector-j-$version.jar
mkdir -p "$cache_dir"
need javac default-jdk-headless
if [ ! -s "$jar" ]; then
	need mvn maven
	say "fetches the JDBC driver $version with maven"
	workspace
	mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=com.mysql:mysql-connector-j:$version -DoutputDirectory="$work" >&2
	mv "$work/mysql-connector-j-$version.jar" "$jar"
fi
echo "$jar"
