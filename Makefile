# The front door. Needs: Rust through rustup (the toolchain itself is pinned by rust-toolchain.toml and installed by
# rustup on first use) and, on Debian or Ubuntu, nothing else: missing packages are installed when this runs as root.

.PHONY: help demo test check bench setup clean

help:
	@echo 'make demo    compare the process architectures on this machine; the report is report/index.html'
	@echo 'make test    everything that must hold before a change goes in; ends with one line'
	@echo 'make check   the quick part of it: formatting, clippy, imports between rooms, documentation'
	@echo 'make bench   the micro-benchmarks'
	@echo 'make setup   install what the above need, and the tools that only some comparisons need'
	@echo 'make clean   remove what was built and the report'

demo:
	@.ci/packages build
	cargo run --release --package heddle-cli -- compare --quick --report report

test:
	@.ci/packages build test
	@cargo xtask ci

check:
	@.ci/packages build
	@cargo xtask check

bench:
	@.ci/packages build
	cargo bench --workspace --bench '*'

setup:
	@.ci/packages build test compare
	cargo fetch --locked

clean:
	cargo clean
	rm -rf report
