# /etc/cron.d/php: the sixth column is a user
SHELL=/bin/bash
09,39 *     * * *     root   [ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean
@daily      www-data  php /srv/app/artisan prune
