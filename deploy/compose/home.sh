#!/bin/sh
# Runs a command in a container whose file system is read-only. The home, a file system in memory, begins with links to what the image has: jars, class
# archives and kernels. A file that is written replaces its link.
set -eu
home=${DSKYPE_HOME:-/home/dskype/.dskype}
image=${DSKYPE_IMAGE_HOME:-/opt/dskype/.home}
[ -e "$home/.image" ] || { cp -asT "$image" "$home" && ln -s "$image" "$home/.image"; }
exec "$@"
