#!/bin/sh
# Builds the image streamgroups/kafka-local:<version> without an image registry.
#
#     docker/broker/build-local-image.sh [image name]
#
# Called manually or by CI if apache/kafka cannot be pulled; streamgroups_testkit runs both images. The root
# file system is a minimal Debian with a Java 17 runtime. It is built by debootstrap, which requires root. Kafka's jars
# are those of the embedded broker, which downloads missing ones. The last line of the output is the name of the image.
#
# PYTHON                      the Python that streamgroups and its dependencies are installed in (python3)
# STREAMGROUPS_KAFKA_VERSION  Kafka's version (the embedded broker's)
# STREAMGROUPS_DEBIAN_SUITE   the Debian release to take Java from (bookworm)
# STREAMGROUPS_DEBIAN_MIRROR  where debootstrap fetches packages (debootstrap's default)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
suite=${STREAMGROUPS_DEBIAN_SUITE:-bookworm}
connectors=$here/../../connectors

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 1
}

# A minimal Debian with Java in the directory $1, without package lists, manuals and translations.
make_root() {
    debootstrap --variant=minbase --include=openjdk-17-jre-headless "$suite" "$1" \
        ${STREAMGROUPS_DEBIAN_MIRROR:+"$STREAMGROUPS_DEBIAN_MIRROR"} >"$work/debootstrap.log" 2>&1 \
        || { tail -n 20 "$work/debootstrap.log" >&2; fail "debootstrap failed"; }
    rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/* \
        "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/*
    # debootstrap copies these files from this machine; Docker writes its own files to every container.
    : >"$1/etc/resolv.conf"
    rm -f "$1/etc/hostname"
}

# Kafka in the root file system $1, at the same paths as in apache/kafka, so both images run the same commands.
add_kafka() {
    mkdir -p "$1/opt/kafka/libs" "$1/opt/kafka/bin" "$1/opt/kafka/config" "$1/etc/kafka/docker" \
        "$1/var/lib/kafka/data" "$1/mnt/shared/config"
    install -m 755 "$here/entrypoint.sh" "$here/kafka-run-class.sh" "$1/opt/kafka/bin/"
    install -m 644 "$here/server.properties" "$here/log4j2.yaml" "$here/tools-log4j2.yaml" "$1/etc/kafka/docker/"
    while read -r kind name main_class; do
        case $kind in
            jar) install -m 644 "$name" "$1/opt/kafka/libs/" ;;
            tool) add_tool "$1/opt/kafka/bin/kafka-$name.sh" "$main_class" ;;
        esac
    done <"$work/kafka.txt"
    chroot "$1" useradd --uid 1000 --create-home --shell /bin/bash appuser
    chown -R 1000:1000 "$1/opt/kafka/config" "$1/var/lib/kafka" "$1/etc/kafka" "$1/mnt/shared"
}

add_tool() {
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nexec /opt/kafka/bin/kafka-run-class.sh %s "$@"\n' "$2" >"$1"
    chmod 755 "$1"
}

# The root file system $1 as the image, in place of an earlier one.
import_root() {
    before=$(docker images --quiet "$image")
    tar --create --numeric-owner --file="$work/root.tar" --directory="$1" .
    docker import \
        --change 'ENTRYPOINT ["/opt/kafka/bin/entrypoint.sh"]' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/kafka/bin' \
        --change 'ENV LANG=C.UTF-8' \
        --change 'EXPOSE 9092' \
        --change 'USER appuser' \
        --message "Kafka $version on Debian $suite" \
        "$work/root.tar" "$image" >/dev/null
    # Fails while a container runs the earlier image, which then remains without a name.
    [ -z "$before" ] || docker rmi "$before" >/dev/null 2>&1 || true
}

# Starts the image once and stores the JVM's class archive in $1. Later starts need a third less CPU time (JEP 350).
record_classes() {
    archive=/opt/kafka/config/classes.jsa
    first=$(docker run --detach --env KAFKA_OPTS="-XX:ArchiveClassesAtExit=$archive" "$image")
    tries=0
    until docker logs "$first" 2>&1 | grep -q 'Kafka Server started'; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || { docker logs --tail 20 "$first" >&2; fail "the broker does not start"; }
        sleep 0.5
    done
    docker stop --time 60 "$first" >/dev/null
    docker cp "$first:$archive" "$1/opt/kafka/classes.jsa" >/dev/null || fail "the JVM left no class archive"
    chmod 644 "$1/opt/kafka/classes.jsa"
    docker rm "$first" >/dev/null
    first=
}

clean_up() {
    [ -z "$first" ] || docker rm --force "$first" >/dev/null 2>&1 || true
    rm -rf "$work"
}

[ "$(id -u)" -eq 0 ] || fail "needs root: debootstrap changes the root directory"
command -v debootstrap >/dev/null || fail "needs debootstrap: apt-get install debootstrap"
docker version >/dev/null 2>&1 || fail "no Docker daemon answers (docs/containers.rst says how to start one)"

work=$(mktemp -d)
first=
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

printf 'Looking for Kafka …\n'
PYTHONPATH=$here/../..:$connectors${PYTHONPATH:+:$PYTHONPATH} \
    "${PYTHON:-python3}" "$here/describe.py" "${STREAMGROUPS_KAFKA_VERSION:-}" >"$work/kafka.txt"
version=$(sed -n 's/^version //p' "$work/kafka.txt")
image=${1:-streamgroups/kafka-local:$version}

printf 'Making a root file system for Kafka %s from Debian %s …\n' "$version" "$suite"
make_root "$work/root"
add_kafka "$work/root"

printf 'Importing …\n'
import_root "$work/root"
printf 'Recording the classes that a start loads …\n'
record_classes "$work/root"
import_root "$work/root"
printf '%s\n' "$image"
