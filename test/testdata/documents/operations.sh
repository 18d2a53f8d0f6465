tidemark serve
tidemark serve --in-memory
stop
# The directory of the document needs the right to make it.
sed -n '/^A file, `tidemark.yaml`/,/^Unknown keys/s/^    //p' "$ROOT/docs/operations.md" | sed "s,/var/lib/tidemark,$PWD/data," >tidemark.yaml
command tidemark serve --config=tidemark.yaml --dry-run
tidemark serve --in-memory --profiling
kubectl get --raw '/debug/pprof/profile?seconds=10' >cpu.pprof
go tool pprof -top cpu.pprof
