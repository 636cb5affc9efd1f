#!/bin/bash
# The server by Debian's libraries; `start-foreground` is all that it knows.
exec java ${JVMFLAGS:-} -cp /usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar \
    org.apache.zookeeper.server.quorum.QuorumPeerMain "$ZOO_CONF_DIR/zoo.cfg"
