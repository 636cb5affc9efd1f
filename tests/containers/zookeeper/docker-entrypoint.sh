#!/bin/bash
# Writes the configuration from the variables, and becomes the server as a user without rights.
set -eu
if [[ $1 == zkServer.sh && $EUID == 0 ]]; then
    chown -R zookeeper "$ZOO_DATA_DIR" "$ZOO_DATA_LOG_DIR" "$ZOO_LOG_DIR"
    exec gosu zookeeper "$0" "$@"
fi
if [[ ! -e $ZOO_CONF_DIR/zoo.cfg ]]; then
    {
        echo "dataDir=$ZOO_DATA_DIR"
        echo "dataLogDir=$ZOO_DATA_LOG_DIR"
        echo "tickTime=$ZOO_TICK_TIME"
        echo "initLimit=$ZOO_INIT_LIMIT"
        echo "syncLimit=$ZOO_SYNC_LIMIT"
        echo "maxClientCnxns=$ZOO_MAX_CLIENT_CNXNS"
        echo "standaloneEnabled=$ZOO_STANDALONE_ENABLED"
        echo "admin.enableServer=$ZOO_ADMINSERVER_ENABLED"
        echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
        printf '%s\n' ${ZOO_SERVERS:-"server.1=localhost:2888:3888;2181"} ${ZOO_CFG_EXTRA:-}
    } >"$ZOO_CONF_DIR/zoo.cfg"
fi
[[ -e $ZOO_DATA_DIR/myid ]] || echo "${ZOO_MY_ID:-1}" >"$ZOO_DATA_DIR/myid"
exec "$@"
