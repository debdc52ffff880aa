.PHONY: demo test proofs test-doris soak bench lint rename

# Two thousand flights of a year through the whole line, on servers inside the process. KEEP=1 leaves it running.
demo:
	@test -x bin/demo || echo "building the demo, which takes a minute or two the first time"
	@cd embedded && go build -tags gms_pure_go -o ../bin/demo ./cmd/demo
	@KEEP=$(KEEP) exec bin/demo

# All tests, with all their set-up. SLOTLINE_INTEGRATION=off|auto|must; SETUP=0 installs nothing.
test:
	@scripts/test.sh

# All tests, and the proofs under faults that take too long for each day.
proofs:
	@SLOTLINE_PROOFS=1 scripts/test.sh

# The Doris sink's tests against the Doris that SLOTLINE_TEST_DORIS names: http://user:password@fe:8030?query_port=9030
test-doris:
	@test -n "$$SLOTLINE_TEST_DORIS" || { echo "set SLOTLINE_TEST_DORIS to http://user:password@fe:8030?query_port=9030; compose/README.md starts one"; exit 1; }
	@cd integration && SLOTLINE_INTEGRATION=must SLOTLINE_PROOFS=1 go test -count=1 -v -run 'Doris|TestReplayAgainstEveryType/doris|TestP6_AgainstOLAPNamesTheWrongSide/doris|TestP11_OLAP/doris' .

# The servers' tests and proofs on whole data sets; takes hours.
soak:
	@scripts/test.sh soak

# Measures against bare loops and writes bench/out/latest.json. BENCH=name runs one.
bench:
	@integration/images/docker.sh
	@cd bench && BENCH=$(BENCH) go run -tags gms_pure_go .

lint:
	@scripts/lint.sh

# make rename MODULE=example.com/you/slotline
rename:
	@scripts/rename.sh $(MODULE)
