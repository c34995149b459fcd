"""DSkype's own pages and services, mounted in the web server of ``topology/ui``; and webhooks."""
