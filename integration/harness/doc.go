// Package harness gives integration tests real servers and the real slotline binary.
//
// A server comes from the first of these that is there: an endpoint named in the environment, the official image, an
// image that integration/images builds from package registries and keeps. Whether a registry of images can be reached
// is asked once a run, with a short time limit.
//
// Kafka, MySQL and ClickHouse return a server that all tests of one test binary share: give each test names of its own
// (Name, NewDatabase). PrivateKafka, PrivateMySQL and PrivateClickHouse start one for a single test, which may stop,
// kill and pause it. Ports are fixed before the start, so a restarted server is where it was.
//
// Main, called from TestMain, removes everything at the end, also after a failed run, and first what an earlier run
// that was killed left behind.
//
// SLOTLINE_INTEGRATION says what happens where no server can be had: "off" runs no integration test at all, "auto" (the
// default) skips the tests that need one and says so, "must" fails them. A test never skips in silence: Main lists what
// was skipped and why.
//
// The package assumes a Docker daemon on this machine (integration/images/docker.sh starts one) unless every server is
// named in the environment. All of its functions may be called from several goroutines.
package harness
