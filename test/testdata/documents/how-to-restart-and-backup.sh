tidemark serve
kubectl create configmap a --from-literal=k=v
tidemark backup tidemark.tar
kubectl create clusterrole backup --verb=get --non-resource-url=/backup
kubectl create clusterrolebinding backup --clusterrole=backup --user=backup
kubectl auth can-i get /backup --as=backup
stop
tidemark check ~/.local/share/tidemark
tidemark backup restore tidemark.tar ./data
tidemark serve --data-dir=./data
kubectl get configmap a
