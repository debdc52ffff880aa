#!/usr/bin/env bash
# Makes sure that a Docker daemon answers. As root on Debian it says so, installs one and starts it; SETUP=0 forbids both.
image=docker
. "$(dirname "$0")/lib.sh"

docker info >/dev/null 2>&1 && exit 0
[ -z "${DOCKER_HOST:-}" ] || die "DOCKER_HOST=$DOCKER_HOST does not answer; do: unset it, or start that daemon"
[ "${SETUP:-1}" != 0 ] || die "no Docker daemon answers, and SETUP=0 forbids starting one"
[ "$(id -u)" = 0 ] || die "no Docker daemon answers; do: start Docker, or run as root on Debian, where it is installed for you"
mkdir -p "$cache_dir"
if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then
	apt_install docker.io iptables
	docker info >/dev/null 2>&1 && exit 0 # a daemon was there, and only its client was missing
fi
if [ "$(ps -p 1 -o comm= 2>/dev/null)" = systemd ] && systemctl start docker 2>/dev/null; then
	say "started by systemd"
else
	# A daemon that was killed leaves its process id, which may be another process's by now: it would refuse to start.
	for name in docker.pid docker/containerd/containerd.pid; do
		pid=$(cat "/var/run/$name" 2>/dev/null) || continue
		case $(cat "/proc/$pid/comm" 2>/dev/null) in
		dockerd | containerd) ;;
		*) rm -f "/var/run/$name" ;;
		esac
	done
	# It outlives this script, so that the next run finds it warm; it ends with the machine.
	log=/var/log/slotline-dockerd.log
	say "starts dockerd in the background, its log is $log"
	# Without its proxy in the middle, which copies each byte of a published port in a process of its own.
	setsid nohup dockerd --userland-proxy=false >>"$log" 2>&1 </dev/null &
fi
for _ in $(seq 120); do
	docker info >/dev/null 2>&1 && exit 0
	sleep 0.5
done
tail -n 20 /var/log/slotline-dockerd.log >&2 2>/dev/null || true
die "dockerd does not answer after 60 s; its last lines are above"
