tidemark bench list
mkdir -p docs && ln -s "$ROOT/bench" bench
tidemark bench plot --x=objects --scenario=get,list-selector,list-page,create-configmap/16,watch-100 --title='CPU per operation over objects' bench/results/2026-11-21-growth/*.json > docs/growth-objects.svg
tidemark bench plot --x=watchers --scenario=watch --title='CPU per event and watcher over watchers' bench/results/2026-11-21-growth/*w*.json > docs/growth-watchers.svg
tidemark bench plot --x=objects --y=p50 --scenario=start --title='Milliseconds from start to ready over objects' bench/results/2026-11-21-growth/*.json > docs/growth-start.svg
tidemark bench plot --x=objects --y=rss --scenario=get --title='MiB of memory (RSS) after the reads, over objects' bench/results/2026-11-21-growth/*.json > docs/growth-memory.svg
for plot in docs/*.svg; do cmp "$plot" "$ROOT/$plot"; done
