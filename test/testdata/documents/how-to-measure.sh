tidemark bench list
mkdir -p docs && ln -s "$ROOT/bench" bench
tidemark bench plot --x=objects --scenario=get,list-selector,list-page,create-configmap/16,watch-100 --server=tidemark=Tidemark,peer=kube-apiserver --title='CPU time of one operation' bench/results/2026-11-21-growth/*.json > docs/growth-objects.svg
tidemark bench plot --x=watchers --scenario=watch --server=tidemark=Tidemark,peer=kube-apiserver --title='CPU time of an event for one watcher' bench/results/2026-11-21-growth/*w*.json > docs/growth-watchers.svg
tidemark bench plot --x=objects --y=p50 --scenario=start --server=tidemark=Tidemark,peer=kube-apiserver --title='From start to ready' bench/results/2026-11-21-growth/*.json > docs/growth-start.svg
tidemark bench plot --x=objects --y=rss --scenario=get --server=tidemark=Tidemark,peer=kube-apiserver --title='Memory (RSS) after the reads' bench/results/2026-11-21-growth/*.json > docs/growth-memory.svg
for plot in docs/*.svg; do cmp "$plot" "$ROOT/$plot"; done
