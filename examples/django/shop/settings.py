import os

import dj_database_url
from django.core.management.utils import get_random_secret_key

SECRET_KEY = os.environ.get("SECRET_KEY") or get_random_secret_key()
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["outbox", "orders", "shipping"]
MIDDLEWARE = ["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
DATABASES = {"default": dj_database_url.config() | {"OPTIONS": {"pool": {"max_size": 8}}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

# What CREATE USER MAPPING ... OPTIONS (secret ...) was given.
WEBHOOK_SECRET = os.environ.get("WEBHOOK_SECRET", "")
