SELECT `owner`,COUNT(*),0 FROM `everything_202611` WHERE `owner`>? GROUP BY `owner` ORDER BY `owner` LIMIT 500;

SELECT `id`,'',`_ver`,CAST(CONV(LEFT(SHA2(IF(`_ver` & 1,CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`owner`),':',`owner`,',',`id`),CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`owner`),':',`owner`,',',`id`,',',`at`,',',`a_bool`,',',`a_int32`,',',`a_int64`,',',`a_uint64`,',',HEX(SUBSTRING(ST_AsBinary(POINT(`a_float64`+0e0,0)),6,8)),',',`a_decimal`,',',LENGTH(`a_string`),':',`a_string`,',',LENGTH(`a_text`),':',`a_text`,',',LENGTH(`a_bytes`),':',`a_bytes`,',',`a_date`,',',`a_datetime`,',',IFNULL(`n_int32`,'N'),',',IFNULL(CONCAT(LENGTH(`n_string`),':',`n_string`),'N'))),256),16),16,10) AS UNSIGNED),`a_json`,`n_json` FROM `everything_202611` WHERE TRUE ORDER BY `id`;

SELECT `owner`,COUNT(*),CAST(COALESCE(SUM(CAST(CONV(LEFT(SHA2(IF(`_ver` & 1,CONCAT(`_ver`,',',`_ver` & 1,',',`owner`,',',LENGTH(`id`),':',`id`),CONCAT(`_ver`,',',`_ver` & 1,',',`owner`,',',LENGTH(`id`),':',`id`,',',LENGTH(`name`),':',`name`)),256),16),16,10) AS UNSIGNED)),0) % 18446744073709551616 AS UNSIGNED) FROM `customers_202611` WHERE `owner`>? GROUP BY `owner` ORDER BY `owner` LIMIT 500;

SELECT `id`,'',`_ver`,CAST(CONV(LEFT(SHA2(IF(`_ver` & 1,CONCAT(`_ver`,',',`_ver` & 1,',',`owner`,',',LENGTH(`id`),':',`id`),CONCAT(`_ver`,',',`_ver` & 1,',',`owner`,',',LENGTH(`id`),':',`id`,',',LENGTH(`name`),':',`name`)),256),16),16,10) AS UNSIGNED) FROM `customers_202611` WHERE TRUE ORDER BY `id`;

SELECT '',COUNT(*),CAST(COALESCE(SUM(CAST(CONV(LEFT(SHA2(IF(`_ver` & 1,CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`code`),':',`code`),CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`code`),':',`code`,',',LENGTH(`name`),':',`name`)),256),16),16,10) AS UNSIGNED)),0) % 18446744073709551616 AS UNSIGNED) FROM `places_202611`;

SELECT `code`,'',`_ver`,CAST(CONV(LEFT(SHA2(IF(`_ver` & 1,CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`code`),':',`code`),CONCAT(`_ver`,',',`_ver` & 1,',',LENGTH(`code`),':',`code`,',',LENGTH(`name`),':',`name`)),256),16),16,10) AS UNSIGNED) FROM `places_202611` WHERE TRUE ORDER BY `code`;

