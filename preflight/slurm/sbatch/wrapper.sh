#!/bin/sh
# preflight:sbatch - checks a job as it is submitted, then becomes the real sbatch.
#
# Install it as `sbatch` in a directory that comes before the real one's in PATH; see docs/how-to/admin.md.
python=/opt/preflight/bin/python
sbatch=/usr/bin/sbatch
# For everyone, before what a user gives: --preflight-default=warn, --preflight-log=syslog, ... (no spaces in a word)
options=

case "${PREFLIGHT_SBATCH:-on} $*" in
*--preflight-*) ;; # only preflight takes its own options out
off\ *) exec "$sbatch" "$@" ;;
esac
if ! [ -x "$python" ]; then
    echo "preflight: this job was not checked: $python is gone" >&2
    for word do
        shift
        case "$word" in
        --preflight-*) ;;
        *) set -- "$@" "$word" ;;
        esac
    done
    exec "$sbatch" "$@"
fi

# Where preflight cannot even be loaded, the job is submitted all the same.
exec "$python" -I -c '
import sys
try:
    from preflight.slurm.sbatch.gate import guarded
except BaseException as error:
    import os, signal
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stderr.write(f"preflight: this job was not checked: it cannot be loaded: {error}\n")
    os.execv(sys.argv[1], ["sbatch", *(word for word in sys.argv[2:] if not word.startswith("--preflight-"))])
guarded([f"--preflight-sbatch={sys.argv[1]}", *sys.argv[2:]])
' "$sbatch" $options "$@"
