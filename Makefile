# make test     every test; fetches and starts the servers it needs, stops them at the end
# make check    formatting, lints, documentation
# make demo     archives shipped segments into a folder and shows what is there
# make soak     the long tests: many kills, many seeds, large segments
# make clean-services   stops the tests' servers and removes what was fetched
#
# Needs a Rust toolchain, Python 3 with venv, curl, and apt to fetch database servers (nothing is installed on
# the host). CARGO_TARGET_DIR is respected; servers live in its folder "services".

SHELL := /bin/bash
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
SERVICES := $(TARGET)/services
DEMO := $(abspath $(TARGET))/demo
ARCHIVER := $(TARGET)/debug/binlog-archiver

.PHONY: test check demo soak clean-services

# The servers are stopped whether or not the tests pass, and on an interrupt too.
test:
	@tests/services/fetch $(SERVICES)
	@trap 'tests/services/stop-all $(SERVICES)' EXIT; trap 'exit 130' INT TERM; \
	cargo test --locked $(TEST_ARGS)

check:
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --document-private-items

demo:
	cargo build --locked
	@rm -rf $(DEMO) && mkdir -p $(DEMO)/archive
	@cp -r fixtures/binlogs/mysql97-basic $(DEMO)/binlogs && chmod -R u+w $(DEMO)/binlogs
	@printf '%s\n' '[source]' 'name = "demo"' 'binlog_dir = "$(DEMO)/binlogs"' \
	  '[store]' 'url = "file://$(DEMO)/archive"' '[state]' 'dir = "$(DEMO)/state"' \
	  '[control]' 'socket = "$(DEMO)/control"' '[http]' 'listen = ""' > $(DEMO)/config.toml
	$(ARCHIVER) --config $(DEMO)/config.toml run --once
	$(ARCHIVER) --config $(DEMO)/config.toml status
	$(ARCHIVER) --config $(DEMO)/config.toml verify --deep

soak:
	@tests/services/fetch $(SERVICES)
	@trap 'tests/services/stop-all $(SERVICES)' EXIT; trap 'exit 130' INT TERM; \
	SOAK=1 PROPTEST_CASES=20000 cargo test --locked -- --include-ignored $(TEST_ARGS)

clean-services:
	@if [ -d $(SERVICES) ]; then tests/services/stop-all $(SERVICES); rm -rf $(SERVICES); fi
