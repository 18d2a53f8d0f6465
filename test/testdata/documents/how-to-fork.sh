tidemark serve
kubectl create namespace shop
tidemark fork --name=try
kubectl --kubeconfig=try.kubeconfig delete namespace shop
kubectl --kubeconfig=try.kubeconfig get pods -A
tidemark fork --list
tidemark fork --delete=try
kubectl get namespace shop
tidemark fork --name=staging --keep
kubectl create clusterrole forks --non-resource-url=/forks --non-resource-url='/forks/*' --verb=get,post,delete
kubectl create clusterrolebinding alice-forks --clusterrole=forks --user=alice
kubectl auth can-i post /forks --as=alice
