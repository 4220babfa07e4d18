#!/bin/sh
# Packs what bench/docker_on_gpu.py needs where nothing can be installed: docker's programs with the libraries they
# need besides glibc (2.34 or newer), and the root of a small image with a program that asks libcuda.
#
# bench/gpu/pack_docker.sh ROOT OUT: ROOT has the unpacked packages docker.io (25 or newer, which knows CDI),
# docker-cli, containerd, tini and busybox-static of a Debian; runc, libraries and a C compiler are this machine's.
set -eu
root=$1 out=$2 here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/bin" "$work/lib" "$work/root"
for name in sbin/dockerd bin/docker bin/containerd bin/containerd-shim-runc-v2; do
    cp "$root/usr/$name" "$work/bin/"
done
cp "$(PATH=$PATH:/usr/sbin command -v runc)" "$work/bin/"
cp "$root/usr/bin/tini-static" "$work/bin/docker-init"
libraries=$(ldd "$work/bin/dockerd" "$work/bin/runc" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u)
for library in $libraries; do
    case $library in */libc.so.*) ;; *) cp -L "$library" "$work/lib/" ;; esac
done
cd "$work/root"
mkdir -p bin etc proc dev sys tmp lib64 lib/x86_64-linux-gnu
chmod 1777 tmp
echo 'root:x:0:0::/:/bin/sh' > etc/passwd
cp "$root/usr/bin/busybox" bin/
for name in cat echo env grep head ls sh sleep true; do ln -s busybox "bin/$name"; done
cd - > /dev/null
cc -O1 -std=gnu11 -o "$work/root/bin/cuda_check" "$here/cuda_check.c" -ldl
# libcuda needs more of glibc than the program.
for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1; do
    cp -L "/lib/x86_64-linux-gnu/$name" "$work/root/lib/x86_64-linux-gnu/"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$work/root/lib64/"
# A large dictionary finds what Go's programs have in common: a third less. It takes minutes.
tar --sort=name --owner=0 --group=0 -C "$work" -cf - bin lib | xz --x86 --lzma2=preset=6,dict=256MiB > "$out/engine.tar.xz"
tar --sort=name --owner=0 --group=0 -C "$work" -cf - root | xz > "$out/image.tar.xz"
