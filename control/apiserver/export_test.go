package apiserver

// StartEtcd is startEtcd.
var StartEtcd = startEtcd
