tidemark serve --enable-admission-plugins=ServiceAccount
tidemark serve --disable-admission-plugins=LimitRanger,ResourceQuota
