tidemark serve --controllers='*,-garbage-collector'
tidemark serve --controllers=namespace,event-ttl
tidemark serve --controllers='-*'
