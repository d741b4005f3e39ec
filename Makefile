# The front door. Needs: Rust through rustup (the toolchain itself is pinned by rust-toolchain.toml and installed by
# rustup on first use) and, on Debian or Ubuntu, nothing else: missing packages are installed when this runs as root.

.PHONY: help demo test check bench interop setup clean

help:
	@echo 'make demo    compare the process architectures on this machine; the report is report/index.html'
	@echo 'make test    everything that must hold before a change goes in; ends with one line'
	@echo 'make check   the quick part of it: formatting, clippy, imports between rooms, documentation'
	@echo 'make bench   the micro-benchmarks'
	@echo 'make interop install nginx, haproxy, redis, sshd and other servers (as root) and talk to them through Heddle; Slurm runs a job array'
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

interop:
	@.ci/packages build test interop
	cargo test --package heddle-cli --test real

setup:
	@.ci/packages build test compare
	cargo fetch --locked

clean:
	cargo clean
	rm -rf report
