tidemark serve --data-dir=data
kubectl get --raw '/readyz?verbose'
kubectl create configmap a --from-literal=k=v
tidemark backup tidemark.tar
stop
tidemark check data
mv data data.damaged
tidemark backup restore tidemark.tar data
tidemark serve --data-dir=data
kubectl get configmap a
