# needs curl
tidemark serve --in-memory --port=0 --ready-fd=1 --exit-with-parent --control=./control.sock
cp examples/definition.yaml crd.yaml
curl --unix-socket control.sock http://control/control/v1/worlds -d '{"name": "try"}'
curl --unix-socket control.sock http://control/control/v1/worlds/try/apply -H 'Content-Type: application/yaml' --data-binary @crd.yaml
curl --unix-socket control.sock http://control/control/v1/worlds/try -X DELETE
